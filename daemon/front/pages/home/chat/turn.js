/**
 * One turn of the conversation on the page: what the user or a tool said, or an answer while it is made. An answer has its reasoning, its
 * text, its calls of tools and, below, a line of what became of it. Parts appear when there is something in them.
 */
import { copyButton, el, jsonText } from '../../shared/dom.js';
import { count, duration, rate } from '../format.js';
import { answerText } from './markdown.js';
import { tokenText } from './tokens.js';

export const userTurn = (text) => el('article', { class: 'turn user', 'aria-label': 'You' }, el('div', { class: 'bubble' }, text));

export const toolTurn = (name, text) =>
  el('article', { class: 'turn tool', 'aria-label': `Result of ${name}` }, el('h3', {}, `Result of ${name}`), el('pre', {}, text));

/** The text of arguments, indented where it is JSON already. */
function argumentsShown(text) {
  try {
    return jsonText(JSON.parse(text));
  } catch {
    return el('code', {}, text);
  }
}

/** Why an answer ended, where that is worth a word. */
const endings = { length: 'cut by max tokens', abort: 'aborted' };

/** `withTokens`: show each token with its probability instead of text with code blocks. */
export function answerTurn(withTokens) {
  const reasoning = el('div', { class: 'reasoning-text' });
  const reasons = el('details', { class: 'reasoning', open: true, hidden: true }, el('summary', {}, 'Reasoning'), reasoning);
  const body = el('div', { class: 'answer' });
  const calls = el('div', { class: 'calls' });
  const meta = el('p', { class: 'meta' });
  const note = el('p', { class: 'note' });
  const copy = copyButton('Copy', () => message.content);
  const foot = el('div', { class: 'foot' }, note, meta, copy);
  const node = el('article', { class: 'turn assistant', 'aria-label': 'Answer', 'aria-busy': 'true' }, reasons, body, calls, foot);
  const text = withTokens ? null : answerText(body);
  const tokens = withTokens ? tokenText(body) : null;
  const message = { role: 'assistant', content: '' };
  const callViews = [];
  copy.hidden = true;

  function addCall({ index, id, function: { name = '', arguments: more } }) {
    message.tool_calls ??= [];
    message.tool_calls[index] ??= { id, type: 'function', function: { name, arguments: '' } };
    message.tool_calls[index].function.arguments += more;
    callViews[index] ??= callView(message.tool_calls[index]);
    callViews[index].update();
  }

  function callView(call) {
    const shown = el('pre', { tabindex: '0', role: 'region', 'aria-label': `Arguments of ${call.function.name}` });
    calls.append(
      el('div', { class: 'call' }, el('h3', {}, el('span', { class: 'kind' }, 'call'), ' ', el('code', {}, call.function.name)), shown),
    );
    return { update: () => shown.replaceChildren(argumentsShown(call.function.arguments)) };
  }

  return {
    node,
    /** The answer as the next question tells it to the model. */
    message,
    /** Something between question and first token: a wait, a prompt that is read. */
    tell(sentence) {
      note.textContent = sentence;
    },
    add({ delta, logprobs }) {
      if (delta.reasoning_content) {
        reasons.hidden = false;
        reasoning.append(delta.reasoning_content);
        message.reasoning_content = (message.reasoning_content ?? '') + delta.reasoning_content;
      }
      if (delta.content) {
        message.content += delta.content;
        text?.push(delta.content);
      }
      if (logprobs) tokens?.push(logprobs.content);
      for (const call of delta.tool_calls ?? []) addCall(call);
      body.hidden = message.content === '' && message.tool_calls !== undefined;
    },
    /** `result`: the response, or null when there was none; `sentence`: what else is to be said. */
    end(result, sentence) {
      text?.end();
      node.removeAttribute('aria-busy');
      note.textContent = [endings[result?.choices[0]?.finish_reason], sentence].filter(Boolean).join('. ');
      copy.hidden = message.content === '';
      const usage = result?.usage;
      if (usage === undefined) return;
      const { completion_tokens: made, prompt_tokens: read, prompt_tokens_details: details, ttft_s: first, tpot_s: each } = usage;
      const cached = details?.cached_tokens ?? 0;
      meta.textContent = [
        `${count(made)} tokens`,
        each > 0 ? `${rate(1 / each)} tokens/s` : '',
        first > 0 ? `first after ${duration(first * 1000)}` : '',
        `prompt ${count(read)}${cached > 0 ? `, ${count(cached)} cached` : ''}`,
      ]
        .filter(Boolean)
        .join(' · ');
    },
    /** A sentence that says what went wrong. */
    fail(sentence) {
      text?.end();
      node.removeAttribute('aria-busy');
      node.classList.add('failed');
      note.textContent = '';
      foot.before(el('p', { class: 'error', role: 'alert' }, sentence));
      copy.hidden = message.content === '';
    },
  };
}
