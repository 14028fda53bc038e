/**
 * Puts long lists of token ids of a large message in one piece of memory each, which moves to the main thread: half a million numbers that are
 * copied one by one, in an array, keep it for 25 ms, and to look at each another 5 to 30. Which lists there are is data (prompt-places.ts).
 */
import { promptPlaces } from './prompt-places.js';

/** Shorter lists stay as they are. */
const LONG = 4096;

/**
 * In place. `method` or its face; `params` as they came, of any form.
 * @returns the memory of the lists, to be moved along.
 */
export function packIds(method: string, params: unknown): ArrayBuffer[] {
  const moved: ArrayBuffer[] = [];
  if (typeof params !== 'object' || params === null) return moved;
  const holder = params as Record<string, unknown>; // proof: members of an array are looked up in vain
  for (const name of promptPlaces.get(method)?.ids ?? []) {
    const value = holder[name];
    if (!Array.isArray(value)) continue;
    holder[name] = packed(value, moved);
    // Lists of several prompts.
    if (holder[name] === value) for (const [i, one] of value.entries()) if (Array.isArray(one)) value[i] = packed(one, moved);
  }
  return moved;
}

/** The list itself where it is short, or holds anything but numbers that fit. */
function packed(list: readonly unknown[], moved: ArrayBuffer[]): readonly unknown[] | Int32Array {
  if (list.length < LONG) return list;
  const ids = new Int32Array(list.length);
  for (const [i, one] of list.entries()) {
    if (typeof one !== 'number' || !Object.is(one | 0, one)) return list;
    ids[i] = one;
  }
  moved.push(ids.buffer);
  return ids;
}
