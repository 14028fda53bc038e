/** The list of routes and methods at the side: groups, the search, and moving through it by keys. */

import { byId, el } from '../shared/dom.js';
import { grouped } from './documents.js';
import { badge, breakable } from './view.js';

/** `fill` gives it all entries; `mark` says which one is shown. */
export function sideList() {
  const filter = byId('filter');
  const list = byId('list');
  const buttons = { http: byId('kind-http'), rpc: byId('kind-rpc') };
  let entries = [];
  let kind = 'http';
  let chosen = '';

  function draw() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (entry) => `${entry.verb} ${entry.title} ${entry.summary}`.toLowerCase();
    const shown = entries.filter((entry) => (words.length > 0 ? words.every((word) => text(entry).includes(word)) : entry.kind === kind));
    const sections = [...grouped(shown)].map(([name, members]) =>
      el('section', {}, el('h2', {}, name), el('ul', {}, ...members.map((entry) => el('li', {}, link(entry))))),
    );
    list.replaceChildren(...(sections.length === 0 ? [el('p', { class: 'faint none' }, 'Nothing has these words.')] : sections));
    for (const [name, button] of Object.entries(buttons)) button.setAttribute('aria-pressed', String(words.length === 0 && name === kind));
  }

  function link(entry) {
    return el(
      'a',
      { href: `#/${entry.id}`, title: entry.summary, ...(entry.id === chosen ? { 'aria-current': 'page' } : {}) },
      entry.kind === 'http' || filter.value !== '' ? badge(entry.verb) : null,
      el('span', { class: 'path' }, ...breakable(entry.title)),
    );
  }

  for (const [name, button] of Object.entries(buttons)) {
    button.addEventListener('click', () => {
      kind = name;
      filter.value = '';
      draw();
    });
  }
  filter.addEventListener('input', draw);
  byId('side').addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      filter.value = '';
      filter.focus();
      draw();
    }
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    const stops = [filter, ...list.querySelectorAll('a')];
    const next = stops[stops.indexOf(document.activeElement) + (event.key === 'ArrowDown' ? 1 : -1)];
    if (next === undefined) return;
    event.preventDefault();
    next.focus();
  });
  return {
    fill(all) {
      entries = all;
      draw();
    },
    mark(entry) {
      chosen = entry?.id ?? '';
      if (entry !== undefined && filter.value === '') kind = entry.kind;
      draw();
      list.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest' });
    },
  };
}
