/**
 * The KV pool as a picture: a square for a block, or for some that lie side by side. Colours tell free, cached, shared, and whose; the
 * mouse tells of one square, and the list below names who holds most and leads to what happened to them.
 */
import { el } from '../../shared/dom.js';
import { count, shortId } from '../format.js';
import { canvasOf, colours } from './colours.js';

const CELLS = 4096;
const FIRST_OWNER = 3;
const OTHERS = 255;
const MOST_LISTED = 8;
const NUM_COLOURS = 8;

/** The same request has the same colour wherever it lies. */
function colourNumber(id, i) {
  let sum = i;
  for (const letter of id ?? '') sum = (sum * 31 + letter.charCodeAt(0)) >>> 0;
  return sum % NUM_COLOURS;
}

export function kvMapView() {
  const canvas = el('canvas', { class: 'map', role: 'img', 'aria-label': 'KV pool' });
  const words = el('p', { class: 'faint small' });
  const told = el('p', { class: 'small told' });
  const owners = el('ul', { class: 'owners' });
  const key = (name, label) => el('span', { class: 'key' }, el('i', { class: name, 'aria-hidden': 'true' }), label);
  const node = el(
    'section',
    { class: 'card wide', 'aria-label': 'KV pool' },
    el('h2', {}, 'KV pool'),
    canvas,
    el(
      'div',
      { class: 'keys' },
      key('free', 'free'),
      key('cached', 'cached'),
      key('shared', 'shared'),
      key('owner0', 'held, a colour a request'),
    ),
    words,
    told,
    owners,
  );
  let map = null;
  let cells = new Uint8Array(0);
  let columns = 1;
  let size = 1;

  function draw() {
    if (map === null) return;
    const { context, width, height } = canvasOf(canvas);
    if (width === 0) return;
    size = Math.max(2, Math.floor(Math.sqrt((width * height) / Math.max(1, cells.length))));
    while (size > 2 && Math.ceil(cells.length / Math.floor(width / size)) * size > height) size--;
    columns = Math.max(1, Math.floor(width / size));
    const shown = colours();
    const gap = size > 4 ? 1 : 0.5;
    const fills = [
      shown.free,
      shown.cached,
      shown.shared,
      ...map.owners.map(({ request_id: id }, i) => shown[`owner${colourNumber(id, i)}`]),
    ];
    for (const [i, cell] of cells.entries()) {
      context.fillStyle = fills[cell] ?? shown.faint;
      context.fillRect((i % columns) * size, Math.floor(i / columns) * size, size - gap, size - gap);
    }
  }

  canvas.addEventListener('mousemove', ({ offsetX, offsetY }) => {
    const i = Math.floor(offsetY / size) * columns + Math.floor(offsetX / size);
    if (map === null || i >= cells.length || offsetX >= columns * size) return;
    const first = i * map.blocks_per_cell;
    const last = Math.min(first + map.blocks_per_cell, map.total_blocks) - 1;
    const cell = cells[i];
    const owner = map.owners[cell - FIRST_OWNER];
    const whose = cell === OTHERS ? 'held' : (['free', 'cached', 'shared'][cell] ?? `held by ${owner?.request_id ?? 'another client'}`);
    told.textContent = `${first === last ? `Block ${first}` : `Blocks ${first} to ${last}`}: ${whose}`;
  });
  canvas.addEventListener('mouseleave', () => {
    told.textContent = '';
  });

  return {
    node,
    draw,
    maxCells: CELLS,
    show(next) {
      map = next;
      cells = Uint8Array.from(atob(next.cells), (letter) => letter.charCodeAt(0));
      draw();
      const each = next.blocks_per_cell === 1 ? 'A square is a block' : `A square is ${next.blocks_per_cell} blocks`;
      words.textContent = `${each} of ${next.block_size} tokens; ${count(next.total_blocks)} blocks.`;
      const shares = [0, 0, 0, 0];
      for (const cell of cells) shares[Math.min(cell, FIRST_OWNER)]++;
      const part = (i) => `${Math.round((100 * shares[i]) / cells.length)} %`;
      canvas.setAttribute('aria-label', `KV pool: ${part(3)} held, ${part(2)} shared, ${part(1)} cached, ${part(0)} free`);
      const most = next.owners.map((owner, i) => ({ ...owner, i })).sort((a, b) => b.blocks - a.blocks);
      const rows = most.slice(0, MOST_LISTED).map(({ request_id: id, blocks, i }) => {
        const mark = el('i', { class: `owner${colourNumber(id, i)}`, 'aria-hidden': 'true' });
        const name = id === null ? el('span', { class: 'faint' }, 'another client') : el('a', { href: `#/requests/${id}` }, shortId(id));
        return el('li', {}, mark, name, el('span', { class: 'faint number' }, `${count(blocks)} blocks`));
      });
      // What has the focus must not be taken away under the reader's fingers.
      if (!owners.contains(document.activeElement)) owners.replaceChildren(...rows);
    },
  };
}
