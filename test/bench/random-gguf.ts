/**
 * Writes GGUF files of a Llama's shape with random weights of one type, to time engines on a model that nobody has to download: matrices of
 * blocks of random codes with scales that keep products small, norms of ones. There is no vocabulary, so only what times steps opens it.
 */
import { randomFillSync } from 'node:crypto';
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../native/index.js';
import { ggufBytes, type Meta } from '../helpers/native/gguf.js';

/** Types of matrices: their number in the file, weights and bytes of a block, and at which of its bytes f16 scales lie, as their bits. */
export const randomTypes = {
  q8_0: { id: 8, weights: 32, bytes: 34, scales: { 0: 0x0a8e } },
  q4_0: { id: 2, weights: 32, bytes: 18, scales: { 0: 0x1a25 } },
  q4_k: { id: 12, weights: 256, bytes: 144, scales: { 0: 0x068e, 2: 0x11bc } },
  q5_k: { id: 13, weights: 256, bytes: 176, scales: { 0: 0x0347, 2: 0x11bc } },
  q6_k: { id: 14, weights: 256, bytes: 210, scales: { 208: 0x00a8 } },
} as const;
export type RandomType = keyof typeof randomTypes;

const f32Type = 0;
/** Rows of a matrix are made so many bytes at a time. */
const pieceBytes = 1 << 22;

interface Shape {
  readonly vocab_size: number;
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly head_dim: number;
  readonly tie_word_embeddings: boolean;
}

/** `model`: a folder of test/fixtures/shapes. */
function shapeOf(model: string): Shape {
  const config = join(packageRoot(), 'test', 'fixtures', 'shapes', model, 'config.json');
  const shape = JSON.parse(readFileSync(config, 'utf8')) as Omit<Shape, 'head_dim'>;
  return { head_dim: shape.hidden_size / shape.num_attention_heads, ...shape };
}

function metadata(s: Shape): Record<string, Meta> {
  return {
    'general.architecture': 'llama',
    'llama.block_count': s.num_hidden_layers,
    'llama.context_length': 131_072,
    'llama.embedding_length': s.hidden_size,
    'llama.feed_forward_length': s.intermediate_size,
    'llama.attention.head_count': s.num_attention_heads,
    'llama.attention.head_count_kv': s.num_key_value_heads,
    'llama.attention.key_length': s.head_dim,
    'llama.attention.value_length': s.head_dim,
    'llama.attention.layer_norm_rms_epsilon': 1e-5,
    'llama.rope.dimension_count': s.head_dim,
    'llama.vocab_size': s.vocab_size,
    'tokenizer.ggml.model': 'no_vocab',
  };
}

/** Names, and rows and columns; a vector has no rows. */
function tensorsOf(s: Shape): [string, number, number][] {
  const queries = s.num_attention_heads * s.head_dim;
  const keys = s.num_key_value_heads * s.head_dim;
  const layers = Array.from({ length: s.num_hidden_layers }, (_, i): [string, number, number][] => [
    [`blk.${i}.attn_norm.weight`, 0, s.hidden_size],
    [`blk.${i}.attn_q.weight`, queries, s.hidden_size],
    [`blk.${i}.attn_k.weight`, keys, s.hidden_size],
    [`blk.${i}.attn_v.weight`, keys, s.hidden_size],
    [`blk.${i}.attn_output.weight`, s.hidden_size, queries],
    [`blk.${i}.ffn_norm.weight`, 0, s.hidden_size],
    [`blk.${i}.ffn_gate.weight`, s.intermediate_size, s.hidden_size],
    [`blk.${i}.ffn_up.weight`, s.intermediate_size, s.hidden_size],
    [`blk.${i}.ffn_down.weight`, s.hidden_size, s.intermediate_size],
  ]);
  const head: typeof layers = s.tie_word_embeddings ? [] : [[['output.weight', s.vocab_size, s.hidden_size]]];
  return [['token_embd.weight', s.vocab_size, s.hidden_size], ...layers.flat(), ['output_norm.weight', 0, s.hidden_size], ...head.flat()];
}

/** Writes a model of the shape of `model` whose matrices, embedding and head among them, are all of `type`. */
export function writeRandomGguf(path: string, type: RandomType, model: string): void {
  const shape = shapeOf(model);
  const { id, weights, bytes, scales } = randomTypes[type];
  const list = tensorsOf(shape).map(([name, rows, cols]) => ({
    name,
    rows,
    dims: rows === 0 ? [cols] : [cols, rows],
    bytes: rows === 0 ? cols * 4 : (rows * cols * bytes) / weights,
    offset: 0,
  }));
  let end = 0;
  for (const t of list) {
    t.offset = end;
    end += t.bytes; // all are multiples of the alignment
  }
  const none = new Uint8Array(0);
  const file = openSync(path, 'w');
  writeSync(
    file,
    ggufBytes({
      metadata: metadata(shape),
      tensors: list.map((t) => [t.name, { dims: t.dims, type: t.rows === 0 ? f32Type : id, data: none, offset: t.offset }] as const),
    }),
  );
  const piece = new Uint8Array(Math.floor(pieceBytes / bytes) * bytes);
  for (const t of list) {
    if (t.rows === 0) {
      writeSync(file, new Float32Array(t.bytes / 4).fill(1));
      continue;
    }
    for (let done = 0; done < t.bytes; done += piece.length) {
      randomFillSync(piece);
      for (const [at, bits] of Object.entries(scales)) {
        for (let block = Number(at); block < piece.length; block += bytes) {
          piece[block] = bits & 255;
          piece[block + 1] = bits >> 8;
        }
      }
      writeSync(file, piece, 0, Math.min(piece.length, t.bytes - done));
    }
  }
  closeSync(file);
}
