/**
 * Checks that hold unless the code is wrong. A failure ends the actor (its supervisor restarts it); operating errors are values or
 * typed errors instead. Any thread.
 */

export class BrokenInvariant extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'BrokenInvariant';
  }
}

/** @throws BrokenInvariant with `message` unless `condition`. */
export function invariant(condition: boolean, message: string): asserts condition {
  if (!condition) throw new BrokenInvariant(message);
}

/** For the default branch of an exhaustive switch. @throws always. */
export function unreachable(value: never): never {
  throw new BrokenInvariant(`unexpected ${JSON.stringify(value)}`);
}
