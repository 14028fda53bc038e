/**
 * An answer as it grows: text, and blocks of code between lines that begin with three backticks. Nothing else is read into it, and all of it
 * becomes text nodes: what a model writes is never HTML. A line that may yet become a fence is held back until that is known.
 */
import { copyButton, el } from '../../shared/dom.js';

const FENCE = /^ {0,3}(`{3,})(.*)$/;
const MAYBE_FENCE = /^ {0,3}`{0,2}$|^ {0,3}`{3,}.*$/;

/** Appends to `container`. */
export function answerText(container) {
  /** The text node that is written to, and the fence of the block of code that it is in. */
  let node = null;
  let fence = null;
  /** The beginning of a line that may be a fence. */
  let held = '';
  let atLineStart = true;

  function write(told) {
    const text = node === null ? told.replace(/^\n+/, '') : told;
    if (text === '') return;
    if (node === null) {
      node = document.createTextNode('');
      container.append(el('p', {}, node));
    }
    node.appendData(text);
  }

  function toggle(ticks, info) {
    if (fence === null) {
      node = document.createTextNode('');
      const code = node;
      const language = info.trim().slice(0, 40);
      const head = el(
        'div',
        { class: 'code-head' },
        el('span', {}, language === '' ? 'code' : language),
        copyButton('Copy', () => code.data),
      );
      const block = el(
        'pre',
        { tabindex: '0', role: 'region', 'aria-label': `Code${language === '' ? '' : `, ${language}`}` },
        el('code', {}, node),
      );
      container.append(el('div', { class: 'code' }, head, block));
      fence = ticks;
    } else {
      node = null;
      fence = null;
    }
  }

  /** A whole line, with its end. */
  function line(text) {
    const [, ticks, info = ''] = FENCE.exec(text.trimEnd()) ?? [];
    const closes = fence !== null && ticks !== undefined && ticks.length >= fence.length && info.trim() === '';
    const opens = fence === null && ticks !== undefined && !info.includes('`');
    if (opens || closes) toggle(ticks, info);
    else write(text);
  }

  return {
    push(text) {
      for (const part of text.split(/(?<=\n)/)) {
        const ends = part.endsWith('\n');
        if (atLineStart) {
          held += part;
          if (ends) {
            line(held);
            held = '';
          } else if (!MAYBE_FENCE.test(held)) {
            write(held);
            held = '';
            atLineStart = false;
          }
        } else {
          write(part);
          atLineStart = ends;
        }
      }
    },
    /** No more comes. */
    end() {
      if (held !== '') line(held);
      held = '';
    },
  };
}
