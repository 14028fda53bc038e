/** The models: what each is and how it is, load and unload, and getting another one. */
import { byId, el } from '../../shared/dom.js';
import { bytes, count, sentence } from '../format.js';
import { CANCELLED } from '../rpc.js';

const MODELS_MS = 2000;

/** A number of parameters as "7.3 M". */
function parameters(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} B`;
  return n >= 1e6 ? `${(n / 1e6).toFixed(1)} M` : count(n);
}

/** A bar that tells how far something is; without a total it only moves. */
function progressBar(label) {
  const bar = el('progress', { 'aria-label': label });
  const words = el('span', { class: 'faint small number' });
  const node = el('div', { class: 'progress', hidden: true }, bar, words);
  return {
    node,
    /** An event of a load or a pull, or a sentence about one. */
    show(event) {
      node.hidden = false;
      if (event.kind === 'notice') {
        words.textContent = event.message;
        return;
      }
      const pulls = event.kind === 'pull';
      const [done, total] = pulls ? [event.all_bytes, event.all_total] : [event.done, event.total];
      if (total > 0) {
        bar.max = total;
        bar.value = done;
      } else bar.removeAttribute('value');
      const inBytes = pulls || event.phase === 'weights';
      const far = total > 0 ? `${inBytes ? bytes(done) : count(done)} of ${inBytes ? bytes(total) : count(total)}` : '';
      words.textContent = [far, pulls ? event.file : event.phase].filter(Boolean).join(' · ');
    },
    hide() {
      node.hidden = true;
      words.textContent = '';
    },
  };
}

function cardFor(rpc, id, onChange) {
  const state = el('span', { class: 'chip' });
  const facts = el('p', { class: 'faint small' });
  const says = el('p', { class: 'error', role: 'status' });
  const progress = progressBar(`Progress of ${id}`);
  const load = el('button', { type: 'button', 'aria-label': `Load ${id}` }, 'Load');
  const unload = el('button', { type: 'button', 'aria-label': `Unload ${id}` }, 'Unload');
  const node = el(
    'li',
    { class: 'card model' },
    el('div', { class: 'model-head' }, el('h2', {}, id), state, el('span', { class: 'grow' }), load, unload),
    facts,
    progress.node,
    says,
  );

  async function act(method) {
    says.textContent = '';
    load.disabled = unload.disabled = true;
    try {
      await rpc.call(method, { model: id, ...(method === 'models.load' ? { stream: true } : {}) }, { onProgress: progress.show });
    } catch (error) {
      says.textContent = sentence(error);
    }
    progress.hide();
    load.disabled = unload.disabled = false;
    onChange();
  }
  load.addEventListener('click', () => void act('models.load'));
  unload.addEventListener('click', () => void act('models.unload'));
  return {
    node,
    update(model) {
      state.textContent = model.state;
      state.dataset.state = model.state;
      const absent = model.state === 'unloaded' || model.state === 'failed';
      load.hidden = !absent;
      unload.hidden = absent;
      const known = [
        model.architecture,
        model.parameters ? `${parameters(model.parameters)} parameters` : '',
        model.dtype ? `weights ${model.dtype}, KV ${model.kv_dtype}` : '',
        model.max_model_len ? `context ${count(model.max_model_len)} tokens` : '',
        model.size_bytes ? `${bytes(model.size_bytes)} on disk` : '',
        model.memory_bytes ? `${bytes(model.memory_bytes)} of memory` : '',
        model.pinned ? 'pinned' : '',
        model.backend ?? '',
        model.failure ?? '',
      ];
      const text = known.filter(Boolean).join(' · ');
      if (facts.textContent !== text) facts.textContent = text;
    },
  };
}

/** `onList`: told of the models each time they were asked for. */
export function modelsView(rpc, onList) {
  const cards = new Map();
  const list = el('ul', { class: 'models' });
  const name = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', placeholder: 'owner/name or owner/name:Q4_K_M' });
  const pull = el('button', { type: 'submit', class: 'primary' }, 'Pull');
  const stop = el('button', { type: 'button', disabled: true }, 'Stop pulling');
  const progress = progressBar('Progress of the download');
  const says = el('p', { class: 'told', role: 'status' });
  const form = el(
    'form',
    { class: 'card pull', 'aria-label': 'Get a model' },
    el('h2', {}, 'Get a model'),
    el('label', { class: 'field' }, el('span', {}, 'Model to pull'), name),
    el('div', { class: 'actions' }, pull, stop),
    progress.node,
    says,
  );
  byId('models').append(el('div', { class: 'models-in' }, el('h1', {}, 'Models'), list, form));
  let timer = 0;
  let shown = false;
  let pulling = null;

  async function refresh() {
    clearTimeout(timer);
    try {
      const { data } = await rpc.call('models.list');
      onList(data);
      const ids = new Set(data.map(({ id }) => id));
      for (const [id, card] of cards) {
        if (ids.has(id)) continue;
        card.node.remove();
        cards.delete(id);
      }
      for (const model of data) {
        let card = cards.get(model.id);
        if (card === undefined) {
          card = cardFor(rpc, model.id, refresh);
          cards.set(model.id, card);
          list.append(card.node);
        }
        card.update(model);
      }
    } catch {
      // The connection is lost: the top of the page says so.
    }
    clearTimeout(timer);
    if (shown) timer = setTimeout(refresh, MODELS_MS);
  }

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const model = name.value.trim();
    if (model === '' || pulling !== null) return;
    pulling = new AbortController();
    pull.disabled = true;
    stop.disabled = false;
    says.className = 'told';
    says.textContent = `Pulling ${model}.`;
    try {
      await rpc.call('models.pull', { model, stream: true }, { signal: pulling.signal, onProgress: progress.show });
      says.textContent = `${model} is here.`;
      void refresh();
    } catch (error) {
      says.className = 'error';
      says.textContent = error.code === CANCELLED ? 'Stopped; what came is kept, and another try goes on from there.' : sentence(error);
    }
    progress.hide();
    pulling = null;
    pull.disabled = false;
    stop.disabled = true;
  });
  stop.addEventListener('click', () => pulling?.abort());

  return {
    refresh,
    show() {
      shown = true;
      void refresh();
    },
    hide() {
      shown = false;
      clearTimeout(timer);
    },
    connected: () => void refresh(),
  };
}
