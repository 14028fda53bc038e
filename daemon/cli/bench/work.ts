/** How many operations and bytes the steps of a benchmark are, from config.json and what the engine says of the model. */
import type { ExpertWork, NativeModelInfo } from '../../../native/index.js';
import type { BatchShape } from './plans.js';

/** Sizes of config.json that the counts of operations need. */
export interface Sizes {
  readonly hidden: number;
  /** Features of the MLP between its products. */
  readonly inner: number;
  readonly vocab: number;
  readonly layers: number;
  /** Query heads times their size. */
  readonly queries: number;
  /** Key and value heads times their size. */
  readonly keys: number;
  readonly tied: boolean;
}

export function readSizes(config: Readonly<Record<string, unknown>>): Sizes {
  const count = (name: string): number => Number(config[name] ?? 0);
  const hidden = count('hidden_size');
  const heads = count('num_attention_heads');
  const headDim = count('head_dim') || hidden / heads;
  return {
    hidden,
    inner: count('intermediate_size'),
    vocab: count('vocab_size'),
    layers: count('num_hidden_layers'),
    queries: heads * headDim,
    keys: (count('num_key_value_heads') || heads) * headDim,
    tied: config['tie_word_embeddings'] === true,
  };
}

/** What a step made of the model's experts, over all layers that have some. */
export interface ExpertSummary {
  readonly layers: number;
  /** Of a layer. */
  readonly experts: number;
  /** Of these a token goes to so many. */
  readonly chosen: number;
  /** Of these so many got a token in the step, in the mean over the layers. */
  readonly distinct: number;
  /** Weights, in bytes, of those that got none. */
  readonly unreadBytes: number;
  /** Of those that a token does not go to. */
  readonly idleParameters: number;
}

/** Null of a model without experts. */
export function summarize(work: readonly ExpertWork[]): ExpertSummary | null {
  const [first] = work;
  if (first === undefined) return null;
  const sum = (of: (w: ExpertWork, distinct: number) => number): number =>
    work.reduce((total, w) => total + of(w, w.tokens.filter((count) => count > 0).length), 0);
  return {
    layers: work.length,
    experts: first.tokens.length,
    chosen: first.chosen,
    distinct: sum((_, distinct) => distinct) / work.length,
    unreadBytes: sum((w, distinct) => (w.tokens.length - distinct) * w.bytes),
    idleParameters: sum((w) => (w.tokens.length - w.chosen) * w.parameters),
  };
}

/**
 * Operations and bytes of the two steps: products and attention; norms and samples are left out. Of experts those of a token count as
 * operations, and as bytes those that the last decode step has chosen; a prefill is taken to need them all. `share`: of so many ranks
 * this is one, whose weights and blocks `info` tells.
 */
export function workOf(
  info: NativeModelInfo,
  sizes: Sizes,
  shape: BatchShape,
  { warmup, experts, share }: { readonly warmup: number; readonly experts: ExpertSummary | null; readonly share: number },
) {
  const table = sizes.vocab * sizes.hidden;
  const layers = info.parameters - table * (sizes.tied ? 1 : 2) - (experts?.idleParameters ?? 0);
  const perLayer = 4 * sizes.queries; // of attention, for one query and one key
  const context = shape.length + (warmup + shape.steps) / 2; // of the middle one of the steps kept
  const tokens = shape.batch * shape.length;
  // From its attention on, the last layer works for the tokens that get logits, one a sequence.
  const pairs = shape.batch * shape.length * ((sizes.layers - 1) * ((shape.length + 1) / 2) + 1);
  const behind = layers / sizes.layers - sizes.hidden * (sizes.queries + 2 * sizes.keys);
  const weightBytes = info.weightBytes - info.tableBytes;
  return {
    prefillFlops: (2 * layers * tokens - 2 * behind * (tokens - shape.batch) + 2 * table * shape.batch + perLayer * pairs) / share,
    decodeFlops: (2 * (layers + table) * shape.batch + perLayer * sizes.layers * context * shape.batch) / share,
    weightBytes,
    decodeWeightBytes: weightBytes - (experts?.unreadBytes ?? 0),
    cacheBytes: (shape.batch * context * info.blockBytes) / shape.blockSize,
  };
}
