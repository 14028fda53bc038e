/** A pooled hidden state as an embedding: cut, normalised, and as clients want to read it. Pure. */
import { Buffer } from 'node:buffer';
import { InferdError } from '../../actors/messages/errors.js';
import { packedList } from '../packed-list.js';

export type EncodingFormat = 'float' | 'base64';

/** Characters of a float32 as JSON, about. */
const FLOAT_CHARS = 20;

/**
 * The first `dimensions` numbers of `state`, divided by their Euclidean norm; one of nothing but zeros stays as it is. A new array.
 * @throws InferdError engine_failure when the model gave something else than numbers.
 */
export function embeddingOf(state: Float32Array, dimensions: number): Float32Array {
  const cut = state.slice(0, dimensions);
  let squares = 0;
  for (const x of cut) squares += x * x;
  const norm = Math.sqrt(squares);
  if (!Number.isFinite(norm)) {
    throw new InferdError('engine_failure', 'The model gave an embedding that is not finite', { retriable: false });
  }
  return norm === 0 ? cut : cut.map((x) => x / norm);
}

/** Bytes that an answer keeps of an embedding of so many numbers until it is written. */
export function keptBytes(dimensions: number, format: EncodingFormat): number {
  return format === 'base64' ? 4 * Math.ceil((4 * dimensions) / 3) : 4 * dimensions;
}

/** As base64 the bytes of the array, which are little-endian wherever Node runs an engine. */
export function encoded(embedding: Float32Array, format: EncodingFormat): string | number[] {
  if (format === 'base64') return Buffer.from(embedding.buffer, embedding.byteOffset, embedding.byteLength).toString('base64');
  return packedList({ length: embedding.length, chars: embedding.length * FLOAT_CHARS, iterate: () => embedding });
}
