/** A stream that can be read before it is open, so that a program need not wait for it first. */

export class OpenedStream<C> implements AsyncIterableIterator<C> {
  readonly #stream: Promise<AsyncIterableIterator<C>>;

  constructor(stream: Promise<AsyncIterableIterator<C>>) {
    this.#stream = stream;
    stream.catch(() => {}); // told by the first next()
  }

  async next(): Promise<IteratorResult<C>> {
    return (await this.#stream).next();
  }

  /** Leaving the loop early cancels the answer. */
  async return(): Promise<IteratorResult<C>> {
    const stream = await this.#stream.catch(() => null);
    await stream?.return?.();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
