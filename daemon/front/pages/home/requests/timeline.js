/** What happened to one prompt: a bar from its arrival to its end, and the same as a table. */
import { el } from '../../shared/dom.js';
import { count, duration } from '../format.js';

/** Parts of the bar: kind, from, to (ms). Where nothing else is said, a request that has begun decodes. */
function spans(marks, endMs) {
  const parts = [];
  const started = marks.find(({ kind }) => kind === 'started')?.at_ms ?? endMs;
  parts.push({ kind: 'queue', from: 0, to: started });
  const first = marks.find(({ kind }) => kind === 'first_token')?.at_ms;
  if (first !== undefined) parts.push({ kind: 'decode', from: first, to: endMs });
  for (const mark of marks) if (mark.kind === 'prefill') parts.push({ kind: 'prefill', from: mark.at_ms, to: mark.until_ms });
  const away = new Map();
  for (const { kind, at_ms: at, sequence } of marks) {
    if (kind === 'preempted') away.set(sequence, at);
    if (kind !== 'resumed' || !away.has(sequence)) continue;
    parts.push({ kind: 'preempted', from: away.get(sequence), to: at });
    away.delete(sequence);
  }
  for (const at of away.values()) parts.push({ kind: 'preempted', from: at, to: endMs });
  return parts;
}

/** A mark as a person says it. `n`: prompt and sequences are told apart only where there are several. */
function words(mark, several) {
  const which = several && mark.sequence !== undefined ? ` (sequence ${mark.sequence})` : '';
  switch (mark.kind) {
    case 'queued':
      return 'Queued';
    case 'started':
      return mark.cached_tokens > 0 ? `Started; ${count(mark.cached_tokens)} prompt tokens were cached` : 'Started';
    case 'prefill':
      return `Prefill, tokens ${count(mark.from)} to ${count(mark.to)}, took ${duration(mark.until_ms - mark.at_ms)}${which}`;
    case 'first_token':
      return 'First token';
    case 'preempted':
      return `Preempted: ${mark.how === 'swap' ? 'its KV was swapped to the host' : 'its KV will be computed again'}${which}`;
    case 'resumed':
      return `Resumed${which}`;
    case 'sequence_ended':
      return `Last token, number ${count(mark.tokens)}${which}`;
    default:
      return { finished: 'Finished', aborted: 'Cancelled', refused: 'Refused: it waited too long' }[mark.how] ?? 'Ended';
  }
}

const labels = { queue: 'queue', prefill: 'prefill', decode: 'decode', preempted: 'preempted' };

export function timelineView({ prompt_tokens: read, completion_tokens: made, marks, marks_left_out: leftOut, arrived_at: arrived }) {
  const last = marks.at(-1);
  const over = last.kind === 'ended';
  const endMs = Math.max(0.001, over ? last.at_ms : Date.now() - Date.parse(arrived));
  const bar = el('div', { class: 'timeline', 'aria-hidden': 'true' });
  for (const { kind, from, to } of spans(marks, endMs)) {
    const part = el('span', { class: kind, title: `${labels[kind]}: ${duration(from)} to ${duration(to)}` });
    part.style.setProperty('--from', String(from / endMs));
    part.style.setProperty('--share', String(Math.max(0, to - from) / endMs));
    bar.append(part);
  }
  const several = marks.some(({ sequence }) => sequence > 0);
  const first = marks.find(({ kind }) => kind === 'first_token')?.at_ms;
  const facts = [
    `${count(read)} prompt tokens`,
    `${count(made)} generated`,
    first === undefined ? '' : `first token after ${duration(first)}`,
    first !== undefined && made > 1 && endMs > first ? `${count((made - 1) / ((endMs - first) / 1000))} tokens/s` : '',
    over ? `${duration(endMs)} in all` : 'still running',
  ];
  const rows = marks.map((mark) => el('tr', {}, el('td', { class: 'number' }, duration(mark.at_ms)), el('td', {}, words(mark, several))));
  return el(
    'div',
    { class: 'told-request' },
    el('p', { class: 'facts' }, facts.filter(Boolean).join(' · ')),
    bar,
    el(
      'div',
      { class: 'keys' },
      Object.entries(labels).map(([kind, label]) => el('span', { class: 'key' }, el('i', { class: kind, 'aria-hidden': 'true' }), label)),
    ),
    el(
      'table',
      {},
      el('caption', { class: 'hidden' }, 'What happened when'),
      el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'after'), el('th', { scope: 'col' }, 'what'))),
      el('tbody', {}, rows),
    ),
    leftOut > 0 ? el('p', { class: 'faint small' }, `${count(leftOut)} more marks were left out.`) : null,
  );
}
