/** A histogram of durations as bars, each with its range and count in its title; the bars are made once and only change their height. */
import { el } from '../../shared/dom.js';
import { count, duration } from '../format.js';

/** Fewest bars, so that little data makes no wide ones. */
const FEWEST = 8;

/** The value that a share of the counts does not exceed, estimated within its bucket; null when there are none. */
export function quantile({ edges, counts }, share) {
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (total === 0) return null;
  let below = 0;
  for (const [i, n] of counts.entries()) {
    if (below + n < share * total || n === 0) {
      below += n;
      continue;
    }
    const from = i === 0 ? 0 : edges[i - 1];
    const to = edges[i] ?? from;
    return from + ((share * total - below) / n) * (to - from);
  }
  return edges.at(-1);
}

/** `title`: what it is of; `unitMs`: milliseconds in a unit of the edges. */
export function histogramView(title, unitMs) {
  const bars = el('div', { class: 'bars', role: 'img' });
  const from = el('span', {});
  const to = el('span', {});
  const words = el('p', { class: 'faint small' });
  const made = [];
  const node = el(
    'section',
    { class: 'card', 'aria-label': title },
    el('h2', {}, title),
    bars,
    el('div', { class: 'ends' }, from, to),
    words,
  );
  return {
    node,
    show(histogram) {
      const { edges, counts } = histogram;
      const seen = counts.flatMap((n, i) => (n > 0 ? [i] : []));
      if (seen.length === 0) {
        words.textContent = 'Nothing measured yet.';
        return;
      }
      const last = Math.min(Math.max(seen.at(-1) + 1, FEWEST), counts.length - 1);
      const first = Math.max(0, Math.min(seen[0] - 1, last - FEWEST));
      const highest = Math.max(...counts);
      while (made.length < last - first + 1) {
        const bar = el('span', {});
        made.push(bar);
        bars.append(bar);
      }
      while (made.length > last - first + 1) made.pop().remove();
      for (const [i, bar] of made.entries()) {
        const n = counts[first + i];
        const least = first + i === 0 ? 0 : edges[first + i - 1];
        const most = edges[first + i];
        bar.style.setProperty('--share', String(n / highest));
        bar.title = `${duration(least * unitMs)} to ${most === undefined ? 'more' : duration(most * unitMs)}: ${count(n)}`;
      }
      from.textContent = duration((first === 0 ? 0 : edges[first - 1]) * unitMs);
      to.textContent = last >= edges.length ? `over ${duration(edges.at(-1) * unitMs)}` : duration(edges[last] * unitMs);
      const half = duration(quantile(histogram, 0.5) * unitMs);
      const tail = duration(quantile(histogram, 0.95) * unitMs);
      words.textContent = `median ${half}, 95 % within ${tail}, of ${count(counts.reduce((sum, n) => sum + n, 0))}`;
      bars.setAttribute('aria-label', `${title}: ${words.textContent}`);
    },
  };
}
