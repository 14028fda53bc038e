/** Waits in tests: for a condition, or for a promise, never for ever. The limit is far above what any test needs; it is no timing check. */

const LIMIT_MS = 60_000;
const LOOK_EVERY_MS = 5;

/** Looks at `condition` until it holds. @throws when it does not within the limit. */
export async function eventually(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const until = performance.now() + LIMIT_MS;
  while (!(await condition())) {
    if (performance.now() > until) throw new Error(`this did not happen: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}

/** The outcome of `promise`. @throws when it does not settle within the limit. */
export async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`this did not happen: ${what}`)), LIMIT_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
