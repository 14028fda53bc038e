/**
 * Places for work of one kind in a tokenizer: no more of it goes on at a time than there are places, and clients take turns at them.
 * Used by encode/encode.ts for texts on the thread pool and by template/slow-render.ts for its thread.
 */
import { InferdError } from '../../messages/errors.js';
import { type Asker, WaitingLine } from './waiting-line.js';

export class Places {
  readonly #line = new WaitingLine();
  readonly #count: number;
  #taken = 0;

  constructor(count: number) {
    this.#count = count;
  }

  /** Some of the work goes on. */
  get busy(): boolean {
    return this.#taken > 0;
  }

  /** Runs `work` in a place, at once if one is free. @throws InferdError cancelled when the asker leaves before; what `work` throws. */
  async run<T>(asker: Asker, work: () => T | Promise<T>): Promise<T> {
    if (this.#taken < this.#count) {
      this.#taken++;
      this.#line.went(asker.client);
    } else await this.#line.wait(asker); // whoever leaves a place hands it on
    try {
      if (asker.cancellation.cancelled) throw new InferdError('cancelled');
      return await work();
    } finally {
      if (!this.#line.next()) this.#taken--;
    }
  }
}
