/** The strftime of chat templates (`strftime_now`): English names, local time, unknown directives left as they are. */

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];

/** Formats `date`; the directives are those of C's strftime that templates use. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)([a-zA-Z%])/g, (directive, bare: string, letter: string) => {
    const field = FIELDS[letter];
    if (field === undefined) return directive;
    const text = field(date);
    return bare === '' ? text : text.replace(/^0+(?=\d)/, '');
  });
}

const two = (n: number): string => String(n).padStart(2, '0');
const day = (d: Date): string => DAYS[d.getDay()] ?? '';
const month = (d: Date): string => MONTHS[d.getMonth()] ?? '';
const yearDay = (d: Date): number =>
  Math.round((Date.UTC(d.getFullYear(), d.getMonth(), d.getDate()) - Date.UTC(d.getFullYear(), 0, 1)) / 86_400_000) + 1;

const FIELDS: Readonly<Record<string, (date: Date) => string>> = {
  '%': () => '%',
  A: day,
  a: (d) => day(d).slice(0, 3),
  B: month,
  b: (d) => month(d).slice(0, 3),
  d: (d) => two(d.getDate()),
  e: (d) => String(d.getDate()).padStart(2, ' '),
  F: (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`,
  H: (d) => two(d.getHours()),
  I: (d) => two(d.getHours() % 12 || 12),
  j: (d) => String(yearDay(d)).padStart(3, '0'),
  M: (d) => two(d.getMinutes()),
  m: (d) => two(d.getMonth() + 1),
  p: (d) => (d.getHours() < 12 ? 'AM' : 'PM'),
  S: (d) => two(d.getSeconds()),
  T: (d) => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`,
  Y: (d) => String(d.getFullYear()),
  y: (d) => two(d.getFullYear() % 100),
};
