/** The chat: a conversation with the model, one answer at a time, streamed. */
import { byId, el } from '../../shared/dom.js';
import { count, sentence } from '../format.js';
import { CANCELLED } from '../rpc.js';
import { followEnd } from './scroll.js';
import { settingsPanel, WrongSetting } from './settings.js';
import { toolResults } from './tool-results.js';
import { answerTurn, toolTurn, userTurn } from './turn.js';

/** Longest answer that is read out to those who hear the page. */
const MOST_HEARD = 2000;

export function chatView(rpc) {
  const settings = settingsPanel();
  const log = el('div', { class: 'log', role: 'log', 'aria-live': 'off', 'aria-label': 'Conversation', tabindex: '0' });
  const empty = el(
    'div',
    { class: 'empty' },
    el('h1', {}, 'What would you like to know?'),
    el('p', {}, 'Nothing that you write here leaves this machine.'),
  );
  const input = el('textarea', { rows: '2', placeholder: 'Message', 'aria-label': 'Message', autocomplete: 'off' });
  const send = el('button', { type: 'submit', class: 'primary' }, 'Send');
  const stop = el('button', { type: 'button', class: 'stop', disabled: true }, 'Stop');
  const clear = el('button', { type: 'button', class: 'quiet' }, 'Clear');
  const more = el('button', { type: 'button', class: 'quiet', 'aria-controls': 'settings', 'aria-expanded': 'true' }, 'Settings');
  const says = el('p', { class: 'form-error', role: 'alert' });
  const heard = el('div', { class: 'hidden', role: 'status', 'aria-live': 'polite' });
  const form = el(
    'form',
    { class: 'composer', 'aria-label': 'Your message' },
    input,
    says,
    el('div', { class: 'actions' }, more, clear, el('span', { class: 'grow' }), stop, send),
  );
  const panel = el('aside', { id: 'settings', class: 'settings', 'aria-label': 'Settings' }, settings.node);
  log.append(empty);
  byId('chat').append(el('div', { class: 'talk' }, log, form, heard), panel);

  const follow = followEnd(log);
  /** What was said, as the model is told it. */
  let messages = [];
  let answering = null;
  let results = null;

  function busy(abort) {
    answering = abort;
    send.disabled = abort !== null;
    stop.disabled = abort === null;
  }

  function add(node) {
    empty.remove();
    log.append(node);
  }

  /** Asks for the answer to `messages`. */
  async function answer(params, withTokens) {
    const turn = answerTurn(withTokens);
    const conversation = messages; // another one may have begun when the answer is over
    const abort = new AbortController();
    add(turn.node);
    busy(abort);
    heard.textContent = 'Answering.';
    follow.toEnd();
    const frames = byFrame((choices) => {
      for (const choice of choices) turn.add(choice);
      follow.grown();
    });
    const onProgress = (event) => {
      if (event.kind === 'queued')
        turn.tell(event.position === 0 ? 'Next in the queue.' : `Waiting, place ${count(event.position + 1)} in the queue.`);
      else if (event.kind === 'prefill') turn.tell(`Reading the prompt: ${count(event.done)} of ${count(event.total)} tokens.`);
      else if (event.kind === 'loading')
        turn.tell(`Loading the model: ${event.phase}${event.total > 0 ? ` ${Math.round((100 * event.done) / event.total)} %` : ''}.`);
      else if (event.kind === 'delta') {
        turn.tell('');
        frames.push(event.choices);
      }
    };
    try {
      const body = { ...params, messages: [...settings.system(), ...conversation], stream: true };
      const result = await rpc.call('chat.completions.create', body, { signal: abort.signal, onProgress });
      frames.flush();
      turn.end(result, '');
    } catch (error) {
      frames.flush();
      if (error.code === CANCELLED) turn.end({ choices: [], usage: error.data?.usage }, 'Stopped.');
      else turn.fail(sentence(error));
    }
    const { message } = turn;
    busy(null);
    if (conversation !== messages) return;
    if (message.content !== '' || message.tool_calls !== undefined) messages.push(message);
    heard.textContent = message.content.slice(0, MOST_HEARD);
    if (message.tool_calls !== undefined) askForResults(message.tool_calls);
    follow.grown();
  }

  function askForResults(calls) {
    results = toolResults(calls, (given) => {
      forgetResults();
      for (const { call, text } of given) {
        messages.push({ role: 'tool', tool_call_id: call.id, content: text });
        add(toolTurn(call.function.name, text));
      }
      ask();
    });
    add(results);
  }

  function forgetResults() {
    results?.remove();
    results = null;
  }

  /** Reads the controls and asks; a control that is wrong is told of and gets the focus. */
  function ask() {
    says.textContent = '';
    try {
      void answer(settings.read(), settings.showTokens);
    } catch (error) {
      if (!(error instanceof WrongSetting)) throw error;
      says.textContent = error.message;
      openPanel(true);
      for (let box = error.field.closest('details'); box !== null; box = box.parentElement.closest('details')) box.open = true;
      error.field.focus();
      return false;
    }
    return true;
  }

  function sendMessage() {
    const text = input.value;
    if (answering !== null || text.trim() === '') return;
    messages.push({ role: 'user', content: text });
    const node = userTurn(text);
    forgetResults();
    add(node);
    if (ask()) input.value = '';
    else {
      messages.pop();
      node.remove();
    }
  }

  function openPanel(open) {
    panel.hidden = !open;
    more.setAttribute('aria-expanded', String(open));
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    sendMessage();
  });
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    sendMessage();
  });
  byId('chat').addEventListener('keydown', ({ key }) => {
    if (key === 'Escape') answering?.abort();
  });
  stop.addEventListener('click', () => {
    answering?.abort();
    input.focus();
  });
  clear.addEventListener('click', () => {
    answering?.abort();
    messages = [];
    results = null;
    log.replaceChildren(empty);
    says.textContent = '';
    input.focus();
  });
  more.addEventListener('click', () => openPanel(panel.hidden));
  const wide = matchMedia('(min-width: 62rem)');
  wide.addEventListener('change', () => openPanel(wide.matches));
  openPanel(wide.matches);

  return { show() {}, hide() {}, connected() {}, setModels: settings.setModels };
}

/** Puts together what comes between two frames of the screen. A page that is not shown has no frames: then a timer does. */
function byFrame(take) {
  let gathered = [];
  let due = false;
  const flush = () => {
    due = false;
    const all = gathered;
    gathered = [];
    if (all.length > 0) take(all);
  };
  return {
    flush,
    push(choices) {
      gathered.push(...choices);
      if (due) return;
      due = true;
      if (document.hidden) setTimeout(flush, 100);
      else requestAnimationFrame(flush);
    },
  };
}
