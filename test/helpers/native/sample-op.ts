/** Runs the sample op of the op table for a list of sequences, one slot each. */
import { packSamplingRow, SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import { floats, ints, runOp, type Setup } from './op-table.js';
import type { SamplerParams } from './reference-sampler.js';

export interface SampleCase {
  readonly logits: Float32Array;
  readonly params: SamplerParams;
  readonly seed?: readonly [lo: number, hi: number];
  readonly sequence?: number;
  /** -1 = no logprobs. */
  readonly topLogprobs?: number;
}

export interface Sampled {
  readonly token: number;
  readonly logprob: number;
  readonly rank: number;
  readonly top: readonly { readonly id: number; readonly logprob: number }[];
}

const MAX_BIAS = 8;
const MAX_MASKED = 4;
const TOP_STRIDE = 20;

function samplingWords(c: SampleCase): Int32Array {
  const [seedLo, seedHi] = c.seed ?? [0, 0];
  const words = packSamplingRow(c.params, { seedLo, seedHi, topLogprobs: c.topLogprobs ?? -1, promptLogprobs: -1 });
  words[SAMPLING_ROW.sequenceIndex] = c.sequence ?? 0;
  words[SAMPLING_ROW.grammar] = c.params.allowed === undefined ? 0 : 1;
  return words;
}

/** A bit an id. */
function maskWords(allowed: ReadonlySet<number>, vocab: number): Int32Array {
  const words = new Int32Array(Math.ceil(vocab / 32));
  for (const id of allowed) words[id >> 5]! |= 1 << (id & 31);
  return words;
}

/** One token for each case, sampled in one step. Also checks that each token was appended to its own history. */
export function sampleAll(setup: Setup, cases: readonly SampleCase[]): Sampled[] {
  const n = cases.length;
  const vocab = cases[0]!.logits.length;
  const maxLen = 1 + Math.max(...cases.map((c) => c.params.prompt.length + c.params.output.length));
  const slotOf = (i: number) => n - 1 - i; // not the order of the samples
  const tokens = new Int32Array(n * maxLen).fill(-1);
  const lengths = new Int32Array(n);
  const promptLens = new Int32Array(n);
  const sampling = new Int32Array(n * SAMPLING_ROW.words);
  const bias = new Int32Array(n * 2 * MAX_BIAS);
  const biasValues = new Float32Array(bias.buffer);
  const numBias = new Int32Array(n);
  const maskedIds = new Int32Array(n * MAX_MASKED);
  const numMasked = new Int32Array(n);
  const logits = new Float32Array(n * vocab);
  const masks = new Int32Array(n * Math.ceil(vocab / 32));
  for (const [i, c] of cases.entries()) {
    const slot = slotOf(i);
    const history = [...c.params.prompt, ...c.params.output];
    tokens.set(history, slot * maxLen);
    lengths[slot] = history.length;
    promptLens[slot] = c.params.prompt.length;
    sampling.set(samplingWords(c), slot * SAMPLING_ROW.words);
    // All ids of a slot, then all values.
    for (const [j, [id, value]] of c.params.bias.entries()) {
      bias[slot * 2 * MAX_BIAS + j] = id;
      biasValues[(slot * 2 + 1) * MAX_BIAS + j] = value;
    }
    numBias[slot] = c.params.bias.length;
    maskedIds.set(c.params.masked, slot * MAX_MASKED);
    numMasked[slot] = c.params.masked.length;
    logits.set(c.logits, i * vocab);
    if (c.params.allowed !== undefined) masks.set(maskWords(c.params.allowed, vocab), (slot * masks.length) / n);
  }
  const attrs = { vocab, max_slots: n, max_len: maxLen, max_bias: MAX_BIAS, max_masked: MAX_MASKED, num_samples: n };
  const result = runOp(setup, 'sample', attrs, {
    ...{ logits, tokens, lengths, prompt_lens: promptLens, sampling, bias, num_bias: numBias },
    ...{ masked: maskedIds, num_masked: numMasked, masks },
    samples: Int32Array.from(cases.flatMap((_, i) => [slotOf(i), 0])),
  });
  const history = ints(result, 'history');
  return cases.map((_, i) => {
    const slot = slotOf(i);
    const token = ints(result, 'tokens')[i]!;
    if (ints(result, 'lengths')[slot] !== lengths[slot]! + 1 || history[slot * maxLen + lengths[slot]!] !== token) {
      throw new Error(`sample ${i} was not appended to its history`);
    }
    const count = ints(result, 'top_counts')[i]!;
    const top = Array.from({ length: count }, (_, j) => ({
      id: ints(result, 'top_ids')[i * TOP_STRIDE + j]!,
      logprob: floats(result, 'top_logprobs')[i * TOP_STRIDE + j]!,
    }));
    return { token, logprob: floats(result, 'logprobs')[i]!, rank: ints(result, 'ranks')[i]!, top };
  });
}
