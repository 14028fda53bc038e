/** Where a person plays the tool: a box for the result of each call, and a button that goes on with them. */
import { el } from '../../shared/dom.js';

/** `onSend` gets the calls, each with the text of its result. */
export function toolResults(calls, onSend) {
  const boxes = calls.map((call) => ({ call, field: el('textarea', { rows: '2', spellcheck: 'false', placeholder: '{"result": …}' }) }));
  const form = el(
    'form',
    { class: 'results', 'aria-label': 'Results of the calls' },
    ...boxes.map(({ call, field }) => el('label', { class: 'field' }, el('span', {}, `Result of ${call.function.name}`), field)),
    el('button', { type: 'submit' }, 'Send results'),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    onSend(boxes.map(({ call, field }) => ({ call, text: field.value })));
  });
  return form;
}
