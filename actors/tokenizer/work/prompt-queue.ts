/**
 * Lets one piece of work through each turn of the event loop, so that the tokens of others go between: rendering a template takes up to
 * some milliseconds, encoding a short text or decoding a slice of ids up to one. Clients take turns (waiting-line.ts). Used by actor.ts
 * and encode/encode.ts in the tokenizer thread.
 */
import { InferdError } from '../../messages/errors.js';
import { type Asker, WaitingLine } from './waiting-line.js';

export class PromptQueue {
  readonly #line = new WaitingLine();
  /** Somebody has passed in this turn of the event loop. */
  #passed = false;

  /**
   * Resolves when the asker may begin, at once if nobody has in this turn of the event loop.
   * @throws InferdError cancelled when the asker leaves before.
   */
  async pass(asker: Asker): Promise<void> {
    if (!this.#passed) {
      this.#line.went(asker.client);
      this.#close();
      return;
    }
    await this.#line.wait(asker);
    if (asker.cancellation.cancelled) throw new InferdError('cancelled');
  }

  /** Nobody passes before the next turn of the event loop, and then the first in line. */
  #close(): void {
    this.#passed = true;
    setImmediate(() => {
      this.#passed = false;
      if (this.#line.next()) this.#close();
    });
  }
}
