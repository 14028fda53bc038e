/**
 * Names the beginning of a token sequence by its content: a key for each block, made of the key of the block before and the tokens of its
 * own. Equal beginnings have equal keys in every engine group, so that those who choose between groups can ask each what it holds.
 *
 * A key has 32 bits and is only a hint: two beginnings with one key send a request to the less fitting group, never to a wrong answer,
 * because each group compares the tokens themselves (scheduler/prefix-cache.ts), which finds its candidates by the same mixing of tokens.
 * Pure; a multiplication for each token.
 */

const { imul } = Math;

/** Key of the empty beginning. */
export const ROOT_KEY = 0x5bd1e995;

/** Key of the empty beginning of requests for an adapter, whose KV differs from that of the same tokens without it; 0: for none. */
export const rootKey = (adapter: number): number => ROOT_KEY ^ imul(adapter, 0x9e3779b1);

/**
 * Key of what ends with `tokens[offset .. offset + count)` and begins with what `parent` names. Never 0. Four sums that do not wait for each
 * other, as FNV's are but each of every fourth token, then the last mixing steps of MurmurHash3. Calls nothing but imul: the first prompts after
 * a start are hashed by V8's interpreter, which pays for each call.
 */
export function nextKey(parent: number, tokens: Int32Array, offset: number, count: number): number {
  let a = parent | 0;
  let b = a ^ 0x9e3779b9;
  let c = a ^ 0x7f4a7c15;
  let d = a ^ 0x3c6ef372;
  const end = offset + count;
  let i = offset;
  for (; i + 3 < end; i += 4) {
    a = imul(a ^ tokens[i]!, 0xcc9e2d51); // i + 3 < end <= length
    b = imul(b ^ tokens[i + 1]!, 0x1b873593);
    c = imul(c ^ tokens[i + 2]!, 0xe6546b65);
    d = imul(d ^ tokens[i + 3]!, 0x27d4eb2f);
  }
  for (; i < end; i++) a = imul(a ^ tokens[i]!, 0xcc9e2d51);
  let h = a ^ ((b << 8) | (b >>> 24)) ^ ((c << 16) | (c >>> 16)) ^ ((d << 24) | (d >>> 8));
  h = imul(h ^ (h >>> 16), 0x85ebca6b);
  h = imul(h ^ (h >>> 13), 0xc2b2ae35);
  h ^= h >>> 16;
  return h === 0 ? 1 : h;
}
