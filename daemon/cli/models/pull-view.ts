/**
 * How a download looks: on a terminal a line for each file on its way and one for all, redrawn in place, with speed and time left; elsewhere a
 * plain line when a file is whole, and one for all every ten seconds. On stderr, so that stdout holds the result alone.
 */
import type { PullEvent, PullProgress } from '../../hub/progress.js';
import { barBlocks } from '../progress.js';
import { formatBytes, formatDuration } from '../table.js';
import type { Io } from '../verb.js';

export interface PullView {
  event(event: PullEvent): void;
  /** Wipes what is drawn. Safe to call twice. */
  end(): void;
}

const redrawMs = 100;
const plainEveryMs = 10_000;
const barWidth = 24;
const maxFileLines = 6;
/** The speed is that of the last seconds. */
const speedOverMs = 4000;

export function pullView(io: Io): PullView {
  return io.stderr.isTTY === true && io.env['TERM'] !== 'dumb' ? terminalView(io) : plainView(io);
}

/** Speed over the last few seconds, of what came in this run. */
export class Speed {
  readonly #samples: (readonly [ms: number, bytes: number])[] = [];

  add(nowMs: number, bytes: number): void {
    const last = this.#samples.at(-1);
    if (last !== undefined && bytes < last[1]) this.#samples.length = 0;
    this.#samples.push([nowMs, bytes]);
    while ((this.#samples[1]?.[0] ?? nowMs) < nowMs - speedOverMs) this.#samples.shift();
  }

  /** Bytes a second; 0 while it is not known. */
  get perSecond(): number {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (first === undefined || last === undefined || last[0] - first[0] < 200) return 0;
    return ((last[1] - first[1]) / (last[0] - first[0])) * 1000;
  }
}

function terminalView(io: Io): PullView {
  const { stderr } = io;
  const blocks = barBlocks(io.env);
  const active = new Map<string, PullProgress>();
  const speed = new Speed();
  let drawn = 0;
  let drawnAt = 0;
  let note = '';
  let last: PullProgress | null = null;
  const wipe = (): void => {
    if (drawn > 0) stderr.write(`\r${drawn > 1 ? `\u001b[${drawn - 1}A` : ''}\u001b[J`);
    drawn = 0;
  };
  const draw = (): void => {
    if (last === null) return;
    const columns = (stderr.columns ?? 80) - 1;
    const bar = (bytes: number, total: number): string => {
      const filled = Math.floor((total > 0 ? bytes / total : 1) * barWidth);
      return blocks.full.repeat(filled) + blocks.empty.repeat(barWidth - filled);
    };
    const files = [...active.values()].slice(0, maxFileLines);
    const lines = files.map((f) => `${bar(f.bytes, f.total)}  ${formatBytes(f.bytes)} of ${formatBytes(f.total)}  ${f.file}`);
    lines.push(`${bar(last.allBytes, last.allTotal)}  ${totalText(last, speed)}${note}`);
    wipe();
    stderr.write(lines.map((line) => line.slice(0, columns)).join('\n'));
    drawn = lines.length;
  };
  return {
    event(event) {
      if (event.kind === 'progress') {
        last = event;
        speed.add(performance.now(), event.allBytes);
        if (event.bytes === event.total) active.delete(event.file);
        else active.set(event.file, event);
        note = '';
      } else if (event.kind === 'retry') note = `  ${event.message}; waiting ${formatDuration(event.waitMs)}`;
      else {
        const said = sentence(event);
        wipe();
        if (said !== null) stderr.write(`${said}\n`);
      }
      if (performance.now() - drawnAt < redrawMs) return;
      drawnAt = performance.now();
      draw();
    },
    end: wipe,
  };
}

function plainView(io: Io): PullView {
  const speed = new Speed();
  let toldAt = performance.now();
  return {
    event(event) {
      if (event.kind !== 'progress') {
        const said = sentence(event);
        if (said !== null) io.stderr.write(`${said}\n`);
        return;
      }
      const now = performance.now();
      speed.add(now, event.allBytes);
      if (event.bytes === event.total) io.stderr.write(`${event.file}  ${formatBytes(event.total)}\n`);
      if (now - toldAt < plainEveryMs) return;
      toldAt = now;
      io.stderr.write(`${totalText(event, speed)}\n`);
    },
    end: () => undefined,
  };
}

function totalText({ allBytes, allTotal }: PullProgress, { perSecond }: Speed): string {
  const share = allTotal > 0 ? Math.floor((allBytes / allTotal) * 100) : 100;
  const rate = perSecond > 0 ? `, ${formatBytes(perSecond)}/s, ${formatDuration(((allTotal - allBytes) / perSecond) * 1000)} left` : '';
  return `${String(share).padStart(3)} %  ${formatBytes(allBytes)} of ${formatBytes(allTotal)}${rate}`;
}

/** What an event other than progress says to people. */
function sentence(event: Exclude<PullEvent, PullProgress>): string | null {
  switch (event.kind) {
    case 'waiting':
      return `Process ${event.pid} works on the same model; waiting for its end`;
    case 'plan':
      return `Fetching ${event.numFiles} files, ${formatBytes(event.bytes)}`;
    case 'retry':
      return `${event.message}; trying again in ${formatDuration(event.waitMs)}`;
    case 'rotten':
      return `${event.file} is not what was promised (${event.message}); fetching it again`;
    default:
      return event satisfies never;
  }
}
