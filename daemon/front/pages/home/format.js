/** Numbers, ids and errors as people read them. */

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export const count = (n) => whole.format(n);

/** 12.3, or 123. */
export const rate = (n) => (n < 100 ? one : whole).format(n);

/** Milliseconds as "0.8 ms", "12 ms", "1.4 s", "2 min 5 s". */
export function duration(ms) {
  if (ms < 10) return `${one.format(ms)} ms`;
  if (ms < 1000) return `${whole.format(ms)} ms`;
  if (ms < 60_000) return `${one.format(ms / 1000)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** Bytes as "812 kB", "1.4 GB". */
export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = n;
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${(unit === 0 ? whole : one).format(value)} ${units[unit]}`;
}

/** A probability as "97 %", "0.4 %". */
export function percent(p) {
  if (p >= 0.1) return `${Math.round(p * 100)} %`;
  return p >= 0.0005 ? `${(p * 100).toFixed(1)} %` : '< 0.1 %';
}

/** The beginning of an id, enough to tell it from others. */
export const shortId = (id) => (id.length > 21 ? `${id.slice(0, 21)}…` : id);

/** An error as one sentence, with what to do where that is known. */
export function sentence(error) {
  const text = /[.!?]$/.test(error.message) ? error.message : `${error.message}.`;
  if (error.code === -32006) return `${text} Clear the conversation, or ask for fewer tokens.`;
  return text;
}
