/**
 * Work at random through a real scheduler and the native engine, with and without drafts, for tests that compare the two. Blocks are few, so
 * that sequences are preempted and swapped, and some are aborted; prompts repeat themselves, so that the n-gram drafter finds what to draft.
 */
import assert from 'node:assert/strict';
import type { RequestId } from '../../../actors/messages/ids.js';
import type { Admit } from '../../../actors/messages/requests.js';
import { packSamplingRow, SAMPLING_ROW } from '../../../actors/messages/sampling.js';
import { Scheduler, type SchedulerOptions } from '../../../actors/scheduler/scheduler.js';
import type { EngineOptions, NativeEngine } from '../../../native/index.js';
import { bytes, defaultOptions } from '../../actors/scheduler/rig.js';
import { generation } from '../../helpers/engine/generation.js';
import { readRecords, type TokenLogprob } from '../../helpers/engine/logprobs.js';
import { openEngine } from '../../helpers/native/native-engine.js';
import { randomInt, randomSource } from '../../helpers/native/reference-ops.js';
import { tinyConfig, withModelFolder } from '../../helpers/native/tiny-model.js';

export const VOCAB = 24;
export const BLOCKS = 40;
export const END = 7;
export const MOST_DRAFTS = 5;
/** Draws differ from the best token, and agree with it often enough: the logits of random weights are nearly flat. */
export const WARM = 0.04;

const options: SchedulerOptions = {
  ...defaultOptions,
  numBlocks: BLOCKS,
  numSwapBlocks: BLOCKS,
  maxSlots: 6,
  maxBatchTokens: 48,
  maxModelLen: 96,
  keptTimelines: 0,
  eosTokenIds: [END],
  epoch: 1,
};
const drafts = { maxTokens: MOST_DRAFTS, maxBatch: 100, rowCost: 0.1, freeRows: 185 };

const bits = (value: number): number => new Int32Array(new Float32Array([value]).buffer)[0] ?? 0;

export interface Kind {
  readonly sampling?: Partial<ReturnType<typeof generation>['sampling']>;
  readonly bias?: readonly number[];
  readonly topLogprobs?: number;
  readonly grammar?: number;
}

function admitOf(kind: Kind, random: () => number, id: number, maxTokens: number): Admit {
  const period = randomInt(random, 1, 5);
  const prompt = Array.from({ length: randomInt(random, 4, 24) }, (_, i) => ((i % period) * 3 + period) % VOCAB);
  const sampling = { ...generation().sampling, temperature: WARM, ...kind.sampling };
  const row = packSamplingRow(sampling, { seedLo: id, seedHi: 1, topLogprobs: kind.topLogprobs ?? -1, promptLogprobs: -1 });
  row[SAMPLING_ROW.grammar] = kind.grammar ?? 0;
  return {
    k: 'admit',
    id: id as RequestId,
    promptIds: bytes(prompt),
    generated: [],
    finished: [],
    samplingRow: new Uint8Array(row.buffer),
    bias: bytes(kind.bias ?? []),
    maxTokens,
    stopTokenIds: [],
    ignoreEos: kind.grammar === undefined && id % 4 !== 0,
    bestOf: id % 5 === 0 ? 2 : 1,
    priority: 0,
    arrivalMs: id,
    turn: 0,
  };
}

export interface Answers {
  /** By request and sequence. */
  readonly tokens: Map<string, number[]>;
  readonly logprobs: Map<string, TokenLogprob[]>;
  readonly refused: number[];
  readonly drafted: number;
  readonly accepted: number;
  readonly preempted: number;
  readonly generated: number;
  readonly steps: number;
}

/** Whether there are drafts, and whether a network makes them. */
export type Speculative = boolean | 'network';

/** Has `numRequests` requests answered, a few at a time. `aborts`: some of them end early, whenever that comes. */
export function answersOf(
  engine: Pick<NativeEngine, 'submit' | 'wait' | 'pending' | 'lastError'>,
  kind: Kind,
  { numRequests, seed, speculative, aborts = false }: { numRequests: number; seed: number; speculative: Speculative; aborts?: boolean },
): Answers {
  const random = randomSource(seed);
  const lengths = randomSource(seed + 1);
  const chance = randomSource(seed + 2);
  const scheduler = new Scheduler(
    { ...options, drafts: speculative === false ? null : { ...drafts, inBlocks: speculative === 'network' } },
    undefined,
    1,
    () => randomInt(lengths, 0, MOST_DRAFTS),
  );
  const tokens = new Map<string, number[]>();
  const logprobs = new Map<string, TokenLogprob[]>();
  const refused: number[] = [];
  const collect = (): void => {
    const outputs = scheduler.takeOutputs();
    refused.push(...outputs.refused.map(({ message }) => message.id as number));
    for (const message of outputs.tokens.values()) {
      const records = message.logprobs === undefined ? [] : readRecords(message.logprobs);
      for (const [i, id] of message.ids.entries()) {
        const key = `${id}.${message.indices[i]}`;
        tokens.set(key, [...(tokens.get(key) ?? []), message.tokens[i] ?? -1]);
        const record = (message.logprobWords?.[i] ?? 0) > 0 ? records.shift() : undefined;
        if (record !== undefined) logprobs.set(key, [...(logprobs.get(key) ?? []), record]);
      }
    }
  };
  const result = new Uint8Array(1 << 18);
  let admitted = 0;
  let steps = 0;
  for (let now = 1; admitted < numRequests || scheduler.hasWork(); now++) {
    while (admitted < numRequests && scheduler.stats().requests.waiting < 3)
      scheduler.admit(admitOf(kind, random, ++admitted, randomInt(random, 8, 60)), 0, now);
    if (aborts && chance() < 0.03) scheduler.abort([randomInt(chance, 1, admitted) as RequestId], now);
    const plan = scheduler.schedule(now);
    if (plan !== null) {
      engine.submit(plan);
      steps++;
    }
    if (plan !== null && scheduler.stepsInFlight < options.maxStepsInFlight) continue;
    if (engine.pending() === 0) continue;
    scheduler.update(result.subarray(0, engine.wait(result, 60_000)), now);
    assert.equal(engine.lastError?.(), '');
    scheduler.checkIntegrity();
    collect();
  }
  const { speculation, requests, tokens: counts } = scheduler.stats();
  return {
    tokens,
    logprobs,
    refused,
    drafted: speculation?.draft_tokens_total ?? 0,
    accepted: speculation?.accepted_tokens_total ?? 0,
    preempted: requests.preempted_total,
    generated: counts.generated_total,
    steps,
  };
}

export const model = { ...tinyConfig, vocab_size: VOCAB, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 32 };
export const native: Partial<EngineOptions> = {
  loadDummy: true,
  threads: 1,
  blockSize: options.blockSize,
  maxSlots: options.maxSlots,
  maxBatchTokens: options.maxBatchTokens,
  maxModelLen: options.maxModelLen,
};
export const drafting = { drafts: { maxTokens: MOST_DRAFTS, ngramMin: 1, ngramMax: 3 } };

/** Of an engine without drafts, and of one that drafts by `drafter` of the folder `target`. */
export function bothOf(
  target: string,
  drafter: NonNullable<EngineOptions['drafts']>,
  kind: Kind,
  work: { numRequests: number; seed: number; aborts?: boolean },
  open: (folder: string, options: Partial<EngineOptions>) => Pick<NativeEngine, 'submit' | 'wait' | 'pending' | 'lastError' | 'close'> = (
    folder,
    options,
  ) => openEngine(folder, options, BLOCKS, BLOCKS),
): { plain: Answers; drafted: Answers } {
  const run = (speculative: Speculative): Answers => {
    const engine = open(target, { ...native, ...(speculative === false ? {} : { drafts: drafter }) });
    try {
      return answersOf(engine, kind, { ...work, speculative, aborts: speculative !== false && work.aborts === true });
    } finally {
      engine.close();
    }
  };
  return { plain: run(false), drafted: run(drafter.method === undefined || drafter.method === 'ngram' ? true : 'network') };
}

/** The same of a tiny model that drafts n-grams. */
export function both(kind: Kind, numRequests: number, seed: number): { plain: Answers; drafted: Answers } {
  return withModelFolder(model, (folder) => bothOf(folder, drafting.drafts, kind, { numRequests, seed }));
}

export function assertSame(plain: Answers, drafted: Answers): void {
  assert.deepEqual([...drafted.tokens].sort(), [...plain.tokens].sort());
  assert.deepEqual([...drafted.logprobs].sort(), [...plain.logprobs].sort());
  assert.deepEqual([...drafted.refused].sort(), [...plain.refused].sort());
}

/** The same, and drafts that were worth it. */
export function assertAlike(plain: Answers, drafted: Answers): void {
  const told = JSON.stringify({ ...drafted, tokens: 0, logprobs: 0, refused: 0 });
  assertSame(plain, drafted);
  assert.ok(drafted.accepted > 200 && drafted.accepted < drafted.drafted && drafted.preempted > 5, told);
  assert.ok(drafted.steps < plain.steps, told);
}

export const kinds: Readonly<Record<string, Kind>> = {
  'the best token': { sampling: { temperature: 0 } },
  temperature: { sampling: { temperature: WARM } },
  top_p: { sampling: { top_p: 0.8, temperature: WARM } },
  top_k: { sampling: { top_k: 4, temperature: WARM } },
  min_p: { sampling: { min_p: 0.1, temperature: WARM } },
  typical_p: { sampling: { typical_p: 0.7, temperature: WARM } },
  'a repetition penalty': { sampling: { repetition_penalty: 1.05 } },
  'a frequency penalty': { sampling: { frequency_penalty: 0.005 } },
  'a presence penalty': { sampling: { presence_penalty: 0.02 } },
  min_tokens: { sampling: { min_tokens: 9, temperature: WARM } },
  'a bias': { bias: [3, bits(0.05), 5, bits(-0.1)] },
  logprobs: { topLogprobs: 3, sampling: { temperature: WARM } },
  'all of them': {
    topLogprobs: 0,
    bias: [3, bits(0.03)],
    sampling: {
      top_p: 0.9,
      top_k: 12,
      min_p: 0.01,
      typical_p: 0.95,
      repetition_penalty: 1.02,
      presence_penalty: 0.01,
      frequency_penalty: 0.002,
      min_tokens: 4,
      temperature: WARM,
    },
  },
};
