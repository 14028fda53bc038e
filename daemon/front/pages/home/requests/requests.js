/** The requests: those that run or wait, with a way to cancel each, those that ended, and what happened to one of them. */
import { byId, el } from '../../shared/dom.js';
import { count, duration, sentence, shortId } from '../format.js';
import { timelineView } from './timeline.js';

const LIST_MS = 1000;

/** A list whose rows stay the same elements while they last, so that the focus does. `make(key)`: `{ node, update(item) }`. */
function keyedList(make) {
  const rows = new Map();
  const node = el('ul', { class: 'rows' });
  return {
    node,
    show(items) {
      const keys = new Set(items.map(({ request_id: id }) => id));
      for (const [id, row] of rows) {
        if (keys.has(id)) continue;
        row.node.remove();
        rows.delete(id);
      }
      for (const [i, item] of items.entries()) {
        let row = rows.get(item.request_id);
        if (row === undefined) {
          row = make(item.request_id);
          rows.set(item.request_id, row);
        }
        row.update(item);
        if (node.children[i] !== row.node) node.insertBefore(row.node, node.children[i] ?? null);
      }
    },
  };
}

function rowFor(id, button) {
  const state = el('span', { class: 'chip' });
  const words = el('span', { class: 'faint small number' });
  const link = el('a', { href: `#/requests/${id}`, title: id }, shortId(id));
  return {
    node: el('li', {}, state, el('div', { class: 'row-words' }, link, words), button),
    update({ state: now, prompt_tokens: read, completion_tokens: made, age_s: age, duration_s: took }) {
      state.textContent = now;
      state.dataset.state = now;
      const seconds = (age ?? took) * 1000;
      words.textContent = `${count(read)} in · ${count(made)} out · ${duration(seconds)}`;
    },
  };
}

export function requestsView(rpc) {
  const says = el('p', { class: 'error', role: 'status' });
  const live = keyedList((id) => {
    const cancel = el('button', { type: 'button', class: 'small-button', 'aria-label': `Cancel ${id}` }, 'Cancel');
    cancel.addEventListener('click', async () => {
      cancel.disabled = true;
      await ask(() => rpc.call('requests.cancel', { request_id: id }));
      void refresh();
    });
    return rowFor(id, cancel);
  });
  const ended = keyedList((id) => rowFor(id, null));
  const none = el('p', { class: 'faint' }, 'Nothing runs or waits.');
  const noneEnded = el('p', { class: 'faint' }, 'None has ended yet.');
  const detail = el('section', { class: 'detail', 'aria-label': 'One request' });
  const hint = el('p', { class: 'faint' }, 'Choose a request to see what happened to it.');
  const told = el('div', {}, hint);
  detail.append(el('a', { class: 'back', href: '#/requests' }, '← All requests'), told);
  const split = el(
    'div',
    { class: 'split' },
    el(
      'div',
      { class: 'list' },
      el('h1', {}, 'Requests'),
      says,
      el('h2', {}, 'Now'),
      none,
      live.node,
      el('h2', {}, 'Ended'),
      noneEnded,
      ended.node,
    ),
    detail,
  );
  byId('requests').append(split);
  let timer = 0;
  let chosen = '';
  let round = 0;

  /** Does something with the daemon; what goes wrong is told. */
  async function ask(work) {
    try {
      const result = await work();
      says.textContent = '';
      return result;
    } catch (error) {
      says.textContent = error.code === undefined ? '' : sentence(error); // a lost connection is told at the top
      return null;
    }
  }

  async function refresh() {
    clearTimeout(timer);
    const mine = ++round;
    const listed = document.hidden ? null : await ask(() => rpc.call('requests.list', { ended: true }));
    if (mine !== round) return;
    if (listed !== null) {
      // A call of several prompts has a row each: they are one request here.
      const unique = [...new Map(listed.requests.map((row) => [row.request_id, row])).values()];
      live.show(unique);
      ended.show(listed.ended);
      none.hidden = unique.length > 0;
      noneEnded.hidden = listed.ended.length > 0;
      if (chosen !== '') await inspect();
    }
    if (mine === round) timer = setTimeout(refresh, LIST_MS);
  }

  let settled = '';
  async function inspect() {
    if (settled === chosen) return;
    const id = chosen;
    const answer = await ask(() => rpc.call('requests.get', { request_id: id }));
    if (answer === null || id !== chosen) return;
    const { request } = answer;
    if (request === null) {
      told.replaceChildren(el('h2', {}, shortId(id)), el('p', {}, 'This request is not known: it is too long ago, or somebody else’s.'));
      settled = id;
      return;
    }
    const views = request.prompts.map((prompt) => timelineView(prompt));
    told.replaceChildren(
      el('h2', {}, el('code', {}, id)),
      el('p', { class: 'faint' }, `${request.model} · ${request.state}`),
      ...(views.length === 0 ? [el('p', {}, 'It has not come to the scheduler, or the engine was restarted since.')] : views),
    );
    // The call ends a moment before the scheduler hears of it.
    if (request.state !== 'running' && request.prompts.every(({ marks }) => marks.at(-1)?.kind === 'ended')) settled = id;
  }

  return {
    show(id) {
      chosen = id;
      settled = '';
      split.classList.toggle('chosen', id !== '');
      if (id === '') told.replaceChildren(hint);
      void refresh();
    },
    hide() {
      round++;
      clearTimeout(timer);
    },
    connected() {
      settled = '';
      if (!byId('requests').hidden) void refresh();
    },
  };
}
