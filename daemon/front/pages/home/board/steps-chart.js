/** What the batches held over the last minute: tokens of prompts and decoded tokens a second, stacked. Drawn from a ring of half seconds. */
import { el } from '../../shared/dom.js';
import { count } from '../format.js';
import { canvasOf, colours } from './colours.js';

const BIN_MS = 500;
const BINS = 120;

export function stepsChart() {
  const canvas = el('canvas', { class: 'steps', role: 'img', 'aria-label': 'Batch composition: nothing ran in the last minute' });
  const scale = el('span', { class: 'scale number' });
  const key = (name, label) => el('span', { class: 'key' }, el('i', { class: name, 'aria-hidden': 'true' }), label);
  const node = el(
    'section',
    { class: 'card wide', 'aria-label': 'Batch composition' },
    el('h2', {}, 'Batch composition'),
    el('div', { class: 'plot' }, canvas, scale),
    el(
      'div',
      { class: 'ends' },
      el('span', {}, 'a minute ago'),
      el('span', { class: 'keys' }, key('prefill', 'prefill tokens/s'), key('decode', 'decode tokens/s')),
      el('span', {}, 'now'),
    ),
  );
  /** By number of the half second, modulo their count. */
  const prefill = new Float64Array(BINS);
  const decode = new Float64Array(BINS);
  /** Which half second each place is of. */
  const stamps = new Float64Array(BINS);
  /** The daemon's clock less ours. */
  let ahead = 0;

  function add(atMs, promptTokens, decodeTokens) {
    const bin = Math.floor(atMs / BIN_MS);
    const at = bin % BINS;
    if (stamps[at] > bin) return; // older than all that is shown
    if (stamps[at] < bin) {
      stamps[at] = bin;
      prefill[at] = 0;
      decode[at] = 0;
    }
    prefill[at] += promptTokens;
    decode[at] += decodeTokens;
  }

  function draw() {
    const { context, width, height } = canvasOf(canvas);
    const shown = colours();
    const last = Math.floor((Date.now() + ahead) / BIN_MS);
    const bins = Array.from({ length: BINS }, (_, i) => {
      const bin = last - BINS + 1 + i;
      const at = bin % BINS;
      return stamps[at] === bin ? [prefill[at], decode[at]] : [0, 0];
    });
    const highest = Math.max(1, ...bins.map(([p, d]) => p + d));
    const step = width / BINS;
    for (const [i, [p, d]] of bins.entries()) {
      const x = i * step;
      const base = (d / highest) * (height - 2);
      const top = (p / highest) * (height - 2);
      context.fillStyle = shown.decode;
      context.fillRect(x, height - base, Math.max(1, step - 1), base);
      context.fillStyle = shown.prefill;
      context.fillRect(x, height - base - top, Math.max(1, step - 1), top);
    }
    const seconds = BIN_MS / 1000;
    scale.textContent = `${count(highest / seconds)}/s`;
    const [p, d] = bins.reduce((sum, bin) => [sum[0] + bin[0], sum[1] + bin[1]], [0, 0]);
    canvas.setAttribute('aria-label', `Batch composition of the last minute: ${count(p)} prefill tokens, ${count(d)} decode tokens`);
  }

  return {
    node,
    draw,
    show(steps) {
      if (steps.at_ms.length > 0) ahead = Math.max(ahead, steps.at_ms.at(-1) - Date.now());
      for (const [i, atMs] of steps.at_ms.entries()) add(atMs, steps.prompt_tokens[i], steps.decode_tokens[i]);
      draw();
    },
  };
}
