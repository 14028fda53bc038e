/**
 * Notices that a folder of credentials has changed. The system's own notice comes at once, where there is one; because it is not to be
 * relied on everywhere (network folders, exhausted watches), the folder's time of change is looked at every second as well. Records are
 * put in place by rename and taken away by unlink, and both change that time.
 */
import { type FSWatcher, statSync, watch } from 'node:fs';

const POLL_MS = 1000;

export class FolderWatch {
  readonly #folder: string;
  readonly #changed: () => void;
  readonly #poll: NodeJS.Timeout;
  #watcher: FSWatcher | null = null;
  #stamp: string;
  #told: NodeJS.Immediate | null = null;

  /** `changed` runs once for several changes of one moment; never after `close`. */
  constructor(folder: string, changed: () => void) {
    this.#folder = folder;
    this.#changed = changed;
    this.#stamp = this.#look();
    this.#open();
    this.#poll = setInterval(() => {
      const stamp = this.#look();
      if (stamp === this.#stamp) return;
      this.#stamp = stamp;
      this.#tell();
      if (this.#watcher === null) this.#open();
    }, POLL_MS).unref();
  }

  close(): void {
    clearInterval(this.#poll);
    if (this.#told !== null) clearImmediate(this.#told);
    this.#watcher?.close();
  }

  #open(): void {
    try {
      const watcher = watch(this.#folder, { persistent: false }, () => this.#tell());
      watcher.on('error', () => {
        watcher.close();
        this.#watcher = null;
      });
      this.#watcher = watcher;
    } catch {
      // Not there yet, or the system has no watches left: the poll goes on.
    }
  }

  #look(): string {
    try {
      const { ino, mtimeNs, ctimeNs } = statSync(this.#folder, { bigint: true });
      return `${ino} ${mtimeNs} ${ctimeNs}`;
    } catch {
      return 'none';
    }
  }

  #tell(): void {
    this.#told ??= setImmediate(() => {
      this.#told = null;
      this.#changed();
    });
  }
}
