/** Memory of the loaded models: weights, KV in use, KV that is free, as parts of one bar each. */
import { el } from '../../shared/dom.js';
import { bytes } from '../format.js';

export function memoryView() {
  const rows = new Map();
  const list = el('div', { class: 'memories' });
  const whole = el('p', { class: 'faint small' });
  const key = (name, label) => el('span', { class: 'key' }, el('i', { class: name, 'aria-hidden': 'true' }), label);
  const node = el(
    'section',
    { class: 'card wide', 'aria-label': 'memory' },
    el('h2', {}, 'Memory'),
    list,
    el('div', { class: 'keys' }, key('weights', 'weights'), key('kv-used', 'KV in use'), key('kv-free', 'KV free')),
    whole,
  );

  function row(id) {
    const parts = ['weights', 'kv-used', 'kv-free'].map((name) => el('span', { class: name }));
    const words = el('span', { class: 'faint small number' });
    const made = {
      parts,
      words,
      node: el(
        'div',
        { class: 'memory' },
        el('div', { class: 'memory-head' }, el('b', {}, id), words),
        el('div', { class: 'stack', 'aria-hidden': 'true' }, parts),
      ),
    };
    rows.set(id, made);
    list.append(made.node);
    return made;
  }

  return {
    node,
    show(models, memory) {
      const largest = Math.max(1, ...models.map((model) => model.weight_bytes + model.kv_bytes));
      for (const [id, old] of rows) {
        if (models.some((model) => model.id === id)) continue;
        old.node.remove();
        rows.delete(id);
      }
      for (const { id, weight_bytes: weights, kv_bytes: kv, kv_used_bytes: used } of models) {
        const { parts, words } = rows.get(id) ?? row(id);
        for (const [i, size] of [weights, used, kv - used].entries()) parts[i].style.setProperty('--share', String(size / largest));
        words.textContent = `weights ${bytes(weights)} · KV ${bytes(kv)}, ${bytes(used)} in use`;
      }
      whole.textContent = `The process holds ${bytes(memory.rss_bytes)}; its JavaScript ${bytes(memory.heap_used_bytes)}.`;
    },
  };
}
