/** What a pull tells while it runs: at most a few events a second for each file, and always the last one. */

export type PullEvent =
  /** Another process pulls the same model: this one waits for its end. */
  | { readonly kind: 'waiting'; readonly pid: number }
  /** What is still to be fetched. */
  | { readonly kind: 'plan'; readonly commit: string; readonly numFiles: number; readonly bytes: number }
  | PullProgress
  | { readonly kind: 'retry'; readonly message: string; readonly waitMs: number }
  /** A file came with other content than promised, and is fetched again. */
  | { readonly kind: 'rotten'; readonly file: string; readonly message: string };

export interface PullProgress {
  readonly kind: 'progress';
  readonly file: string;
  /** Of the file, on the disk. */
  readonly bytes: number;
  readonly total: number;
  /** Of all files of the pull. */
  readonly allBytes: number;
  readonly allTotal: number;
}

interface Sized {
  readonly path: string;
  readonly size: number;
}

const everyMs = 200;

export class Progress {
  readonly #files = new Map<string, { bytes: number; toldAt: number }>();
  readonly #allTotal: number;
  readonly #tell: (event: PullProgress) => void;
  #allBytes = 0;

  constructor(files: readonly Sized[], tell: (event: PullProgress) => void) {
    this.#allTotal = files.reduce((all, { size }) => all + size, 0);
    this.#tell = tell;
  }

  /** So many bytes of the file are there; less than before when it is fetched again. */
  set(file: Sized, bytes: number): void {
    const now = performance.now();
    const known = this.#files.get(file.path);
    this.#allBytes += bytes - (known?.bytes ?? 0);
    const due = known === undefined || bytes === file.size || now - known.toldAt >= everyMs;
    this.#files.set(file.path, { bytes, toldAt: due ? now : known.toldAt });
    if (due) this.#tell({ kind: 'progress', file: file.path, bytes, total: file.size, allBytes: this.#allBytes, allTotal: this.#allTotal });
  }
}
