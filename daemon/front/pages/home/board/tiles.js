/** The figures at the top of the board: a name, a number, a word about it. */
import { el } from '../../shared/dom.js';

/** `name`: as people say it. `set(value, more)` writes only what has changed. */
export function tile(name) {
  const value = el('dd', { class: 'value' }, '–');
  const more = el('dd', { class: 'more' });
  const write = (node, text) => {
    if (node.textContent !== text) node.textContent = text;
  };
  return {
    node: el('dl', { class: 'tile', role: 'group', 'aria-label': name }, el('dt', {}, name), value, more),
    set(number, words = '') {
      write(value, number);
      write(more, words);
    },
  };
}
