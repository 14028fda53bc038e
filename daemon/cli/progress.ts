/**
 * Shows how far start-up is: a bar on a terminal, nothing elsewhere. Redraws one line of stderr at most every 60 ms and leaves no trace
 * behind. Log lines that come meanwhile go above it. Called by `serve` and by the commands that start an engine in process.
 */
import { Writable } from 'node:stream';
import type { StartProgress } from '../../actors/client-types.js';
import { formatBytes } from './table.js';
import type { Io } from './verb.js';

const redrawMs = 60;
const barWidth = 28;

/** What is waited for: a start, or the build before the first one. */
export interface ShownProgress {
  readonly phase: StartProgress['phase'] | 'build';
  readonly done: number;
  readonly total: number;
}

const labels: Readonly<Record<ShownProgress['phase'], string>> = {
  build: 'building the native engine',
  tokenizer: 'loading the tokenizer',
  weights: 'loading the weights',
  kv: 'allocating the KV cache',
  warmup: 'warming up',
};

export interface ProgressBar {
  update(progress: ShownProgress): void;
  /** Wipes the line. Safe to call twice. */
  end(): void;
  /** Where a log must write, so that its lines and the bar do not mix; null when stderr is no terminal. */
  readonly log: Writable | null;
}

const blocks = { full: '█', empty: '░' };
const plainBlocks = { full: '#', empty: '.' };

/** The characters of a bar: plain ones where the locale names another character set than UTF-8. */
export function barBlocks(env: NodeJS.ProcessEnv): typeof blocks {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '';
  return locale === '' || /utf-?8/i.test(locale) ? blocks : plainBlocks;
}

/** One line of text for a state of start-up, at most `columns` wide. */
export function progressLine({ phase, done, total }: ShownProgress, columns: number, { full, empty } = blocks): string {
  const share = total > 0 ? Math.min(1, Math.max(0, done / total)) : 0;
  const filled = Math.round(share * barWidth);
  const bar = `${full.repeat(filled)}${empty.repeat(barWidth - filled)}`;
  const size = phase === 'weights' && total > 1024 ? `  ${formatBytes(done)} of ${formatBytes(total)}` : '';
  return `${bar} ${String(Math.round(share * 100)).padStart(3)} %  ${labels[phase]}${size}`.slice(0, Math.max(0, columns - 1));
}

/** A bar on `io.stderr` when that is a terminal, else one that does nothing. */
export function progressBar(io: Io): ProgressBar {
  const { stderr } = io;
  if (stderr.isTTY !== true || io.env['TERM'] === 'dumb') return { update: () => undefined, end: () => undefined, log: null };
  const drawn = barBlocks(io.env);
  let drawnAt = 0;
  let phase: ShownProgress['phase'] | null = null;
  let shown = false;
  let ended = false;
  const wipe = (): void => {
    if (shown) stderr.write('\r\u001b[K');
    shown = false;
  };
  const log = new Writable({
    decodeStrings: false,
    write(text: string | Buffer, _encoding, done) {
      wipe();
      stderr.write(text);
      done();
    },
  });
  return {
    log,
    update(progress) {
      const now = performance.now();
      if (ended || (progress.phase === phase && now - drawnAt < redrawMs)) return;
      drawnAt = now;
      phase = progress.phase;
      shown = true;
      stderr.write(`\r\u001b[K${progressLine(progress, stderr.columns ?? 80, drawn)}`);
    },
    end() {
      ended = true;
      wipe();
    },
  };
}
