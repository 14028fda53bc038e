/** Elements of the page, made from text only: nothing that the daemon says is ever read as HTML. */

/**
 * An element. `props`: `class`, `on…` handlers, properties of the element where it has them, else attributes; undefined and false are left
 * out. `children`: nodes, or texts.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false || value === null) continue;
    if (name === 'class') node.className = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value !== 'string') node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** A sentence in which `this` is code. */
export function prose(text) {
  return text.split(/`([^`]+)`/).map((part, i) => (i % 2 === 1 ? el('code', {}, part) : part));
}

/** Longer texts are cut: a browser is slow with them. */
const MOST_SHOWN = 200_000;
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/g;

/** A value as indented JSON, its parts in colours. */
export function jsonText(value) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  const shown = text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n… ${text.length - MOST_SHOWN} more characters` : text;
  const parts = [];
  let end = 0;
  for (const match of shown.matchAll(TOKEN)) {
    const [whole, quoted, colon, word] = match;
    parts.push(shown.slice(end, match.index));
    end = match.index + whole.length;
    if (quoted === undefined) parts.push(el('span', { class: word === undefined ? 'num' : 'word' }, whole));
    else parts.push(el('span', { class: colon === undefined ? 'str' : 'key' }, quoted), colon ?? '');
  }
  parts.push(shown.slice(end));
  return el('code', {}, parts);
}

export const jsonBlock = (value, label) =>
  el('pre', { class: 'block', tabindex: '0', role: 'region', 'aria-label': label }, jsonText(value));

/** A button that copies what `text` gives. */
export function copyButton(label, text) {
  const button = el('button', { type: 'button', class: 'quiet small' }, label);
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Not allowed here';
    }
    setTimeout(() => {
      button.textContent = label;
    }, 1500);
  });
  return button;
}
