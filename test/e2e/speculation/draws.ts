/**
 * Draws with drafts against the distribution that they are drawn from: many sequences of three tokens behind one prompt, the second and third of
 * which were drafted by the model itself, which is as often right as the likeliest token is drawn, and chi-square of how often each id came third,
 * for two ways of sampling. What is wanted is made of the logits of every prefix, by the reference of the sampler.
 *
 *   node dist/test/e2e/speculation/draws.js [DRAWS]
 */
import assert from 'node:assert/strict';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import { fixture, openEngine, runStep } from '../../helpers/native/native-engine.js';
import { distribution, plainParams, type SamplerParams } from '../../helpers/native/reference-sampler.js';

const DRAWS = Number(process.argv[2] ?? 200_000);
const SLOTS = 64;
const DRAFTS = 2;
const PROMPT = [17, 130, 45, 17, 201, 88];
const slots = Array.from({ length: SLOTS }, (_, slot) => slot);
/** Of an id, below which ids are counted together. */
const LEAST_EXPECTED = 10;

const ways: Record<string, Partial<SamplerParams>> = {
  'temperature 1': {},
  'top_p 0.9 and penalties': { top_p: 0.9, presence_penalty: 0.8, frequency_penalty: 0.4, repetition_penalty: 1.3 },
};

const engine = openEngine(fixture('golden', 'llama3.1-gqa'), {
  ...{ maxSlots: SLOTS, maxBatchTokens: SLOTS * (PROMPT.length + 2), maxModelLen: 16, blockSize: 16 },
  drafts: { maxTokens: DRAFTS, ngramMin: 1, ngramMax: 1, method: 'draft', modelPath: fixture('golden', 'llama3.1-gqa') },
});
let used = false;
/** New sequences in all slots, each with a block of its own. */
const begin = (tokens: (slot: number) => readonly number[], sampling: (slot: number) => object = () => ({})) => {
  const freed = used ? slots : [];
  used = true;
  return {
    freed,
    newSlots: slots.map((slot) => ({ slot, tokens: tokens(slot), sampling: sampling(slot) })),
    blockSets: slots.map((slot) => ({ slot, index: 0, block: slot })),
  };
};

/** Of each id, the chance that it comes third. */
function exact(way: SamplerParams): number[] {
  const third = new Array<number>(engine.info().vocabSize).fill(0);
  /** What comes behind each prefix, with the chance of the prefix. */
  const expand = (prefixes: readonly { ids: readonly number[]; p: number }[], take: (ids: readonly number[], p: number) => void): void => {
    for (let first = 0; first < prefixes.length; first += SLOTS) {
      const part = prefixes.slice(first, first + SLOTS);
      const of = (slot: number) => part[Math.min(slot, part.length - 1)] ?? { ids: [], p: 0 };
      const tokens = (slot: number): number[] => [...PROMPT, ...of(slot).ids];
      const rows = part.map((_, slot) => ({ slot, start: 0, count: tokens(slot).length, flags: ROW_FLAG.rawLogits }));
      for (const { slot, position, values } of runStep(engine, { ...begin(tokens), rows }).logits) {
        const { ids, p } = of(slot);
        if (position !== PROMPT.length + ids.length - 1) continue;
        for (const [id, share] of distribution(values, { ...way, prompt: PROMPT, output: ids })) take([...ids, id], p * share);
      }
    }
  };
  let prefixes = [{ ids: [] as readonly number[], p: 1 }];
  for (const _ of [1, 2]) {
    const next: typeof prefixes = [];
    expand(prefixes, (ids, p) => next.push({ ids, p }));
    prefixes = next;
  }
  expand(prefixes, (ids, p) => {
    third[ids[2] ?? 0] = (third[ids[2] ?? 0] ?? 0) + p;
  });
  return third;
}

interface Drawn {
  readonly counts: readonly number[];
  readonly accepted: number;
}

function drawn(way: SamplerParams): Drawn {
  const counts = new Array<number>(engine.info().vocabSize).fill(0);
  let accepted = 0;
  const sampling = (seed: number) => ({
    ...{ temperature: way.temperature, topP: way.top_p, seedLo: seed, seedHi: 7 },
    ...{ presencePenalty: way.presence_penalty, frequencyPenalty: way.frequency_penalty, repetitionPenalty: way.repetition_penalty },
  });
  for (let seed = 0; seed < DRAWS; seed += SLOTS) {
    const new_ = begin(
      () => PROMPT,
      (slot) => sampling(seed + slot),
    );
    runStep(engine, {
      ...new_,
      rows: slots.map((slot) => ({ slot, start: 0, count: PROMPT.length })),
      samples: slots.map((slot) => ({ row: slot, slot, drafts: DRAFTS })),
    });
    const { samples } = runStep(engine, {
      rows: slots.map((slot) => ({ slot, start: PROMPT.length, count: 1 + DRAFTS, flags: ROW_FLAG.fromDevice })),
      samples: slots.map((slot) => ({ row: slot, slot, count: 1 + DRAFTS })),
    });
    const given = slots.map((slot) => samples.filter((s) => s.slot === slot).map((s) => s.token));
    const short = slots.filter((slot) => (given[slot]?.length ?? 0) < 2);
    accepted += SLOTS - short.length;
    const last = runStep(engine, {
      rows: short.map((slot) => ({ slot, start: PROMPT.length + 1, count: 1, flags: ROW_FLAG.fromDevice })),
      samples: short.map((slot, row) => ({ row, slot, count: 1 })),
    });
    for (const { slot, token } of last.samples) given[slot]?.push(token);
    for (const tokens of given) counts[tokens[1] ?? 0] = (counts[tokens[1] ?? 0] ?? 0) + 1;
  }
  return { counts, accepted };
}

/** That so much or more comes by chance, by Wilson and Hilferty's approximation. */
function chance(chiSquare: number, freedom: number): number {
  const z = ((chiSquare / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / Math.sqrt(2 / (9 * freedom));
  const t = 1 / (1 + 0.2316419 * Math.abs(z));
  const tail =
    (Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI)) *
    t *
    (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
  return z > 0 ? tail : 1 - tail;
}

for (const [name, params] of Object.entries(ways)) {
  const way: SamplerParams = { ...plainParams, temperature: 1, ...params };
  const wanted = exact(way);
  assert.ok(Math.abs(wanted.reduce((a, b) => a + b, 0) - 1) < 1e-3);
  const { counts, accepted } = drawn(way);
  const total = counts.reduce((a, b) => a + b, 0);
  let chiSquare = 0;
  let bins = 0;
  let rest = { wanted: 0, counted: 0 };
  const add = (expected: number, counted: number): void => {
    chiSquare += (counted - expected) ** 2 / expected;
    bins++;
  };
  for (const [id, p] of wanted.entries()) {
    const expected = p * total;
    const counted = counts[id] ?? 0;
    if (expected >= LEAST_EXPECTED) add(expected, counted);
    else rest = { wanted: rest.wanted + expected, counted: rest.counted + counted };
  }
  if (rest.wanted >= LEAST_EXPECTED) add(rest.wanted, rest.counted);
  const p = chance(chiSquare, bins - 1);
  console.log(
    `${name}: ${total} draws, ${accepted} of them behind an accepted draft; chi-square ${chiSquare.toFixed(1)} of ${bins - 1} degrees, p = ${p.toFixed(3)}`,
  );
  if (p < 1e-4) process.exitCode = 1;
}
engine.close();
