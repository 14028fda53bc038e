/**
 * An answer as its tokens, each with its probability: a tint says how sure the model was, and the token that the mouse or the arrow keys
 * are on shows what else it might have written. One element a token; the alternatives are kept as the daemon sent them.
 */
import { el } from '../../shared/dom.js';
import { percent } from '../format.js';

/** Least probability of each tint, surest first; below them all is the last. */
const tints = [0.9, 0.5, 0.1];

/** Bytes that are no character of their own, and white space, made visible. */
const visible = (token) => token.replaceAll('\n', '⏎').replaceAll(' ', '␣').replaceAll('\t', '⇥');

/** Appends to `container`; shows what is pointed at below it. */
export function tokenText(container) {
  const entries = [];
  const text = el('div', {
    class: 'tokens',
    tabindex: '0',
    role: 'group',
    'aria-label': 'Tokens with probabilities; arrow keys go through them',
  });
  const told = el(
    'div',
    { class: 'alternatives', role: 'status' },
    'Point at a token, or use the arrow keys, to see what else it might have been.',
  );
  container.append(text, told);
  let at = -1;

  function select(i) {
    if (i < 0 || i >= entries.length) return;
    text.children[at]?.classList.remove('at');
    at = i;
    text.children[i].classList.add('at');
    const { token, logprob, top_logprobs: tops } = entries[i];
    const rows = tops.some((top) => top.token === token) ? tops : [{ token, logprob }, ...tops];
    told.replaceChildren(
      ...rows.map((row) => {
        const p = Math.exp(row.logprob);
        const bar = el('span', { class: 'bar', 'aria-hidden': 'true' });
        bar.style.setProperty('--share', String(p));
        return el(
          'span',
          { class: row.token === token ? 'row chosen' : 'row' },
          el('code', {}, visible(row.token)),
          bar,
          el('span', { class: 'number' }, percent(p)),
        );
      }),
    );
  }

  text.addEventListener('mouseover', ({ target }) => {
    if (target !== text) select([...text.children].indexOf(target));
  });
  text.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    select(at + step);
  });
  return {
    push(logprobs) {
      const made = document.createDocumentFragment();
      for (const entry of logprobs) {
        entries.push(entry);
        const p = Math.exp(entry.logprob);
        const tint = tints.findIndex((least) => p >= least);
        made.append(el('span', { class: `t${tint === -1 ? tints.length : tint}` }, entry.token));
      }
      text.append(made);
    },
  };
}
