/**
 * Time of schedule() + update() with 256 sequences decoding, two steps in flight, and of the steps in which their prompts run, among
 * those that decode already: the first ones of a process (`first_prefill_us`), most of which V8 interprets, and those of later prompts of
 * the same scheduler (`prefill_us`). Prints one JSON line:
 *
 *   node dist/test/bench/scheduler.js [sequences] [steps]
 */
import { argv, env, stdout } from 'node:process';
import { fileURLToPath } from 'node:url';
import type { RequestId } from '../../actors/messages/ids.js';
import { PLAN, RESULT, RESULT_SAMPLE } from '../../actors/messages/step.js';
import { Scheduler } from '../../actors/scheduler/scheduler.js';
import { bytes, defaultOptions, samplingRow } from '../actors/scheduler/rig.js';
import { encodeResult } from '../helpers/engine/plan-interpreter.js';
import { planWords, sampledSlots } from '../helpers/engine/plan-reader.js';
import { origin, percentiles } from './report.js';

const PROMPT_TOKENS = 512;
/** Times that all prompts run, the last of which is measured for as many steps as asked for. */
const ROUNDS = 10;
const WARM_ROUNDS = 5;
const WARMUP_STEPS = 2000;
/** Steps in which all sequences decode, in the other rounds. */
const SHORT_STEPS = 200;

function measure(numSequences: number, numSteps: number): Record<string, unknown> {
  // The first sequences decode while the prompts of the others run, which takes no more steps than there are sequences: at least 1024 tokens
  // of each step, and as many as there are sequences, are left for prompts.
  const tokensFor = (steps: number): number => steps + numSequences + 10;
  const mostTokens = tokensFor(WARMUP_STEPS + numSteps);
  const blockSize = 16;
  const scheduler = new Scheduler({
    ...defaultOptions,
    blockSize,
    numBlocks: numSequences * Math.ceil((PROMPT_TOKENS + mostTokens) / blockSize) + 10,
    maxSlots: numSequences,
    maxBatchTokens: Math.max(2048, 2 * numSequences),
    maxModelLen: PROMPT_TOKENS + mostTokens,
  });
  let nextId = 1;
  let now = 1000;
  const admitAll = (maxTokens: number): void => {
    const row = new Uint8Array(samplingRow({ prompt: [], maxTokens }).buffer);
    for (let i = 0; i < numSequences; i++) {
      const id = nextId++;
      const promptIds = bytes(Array.from({ length: PROMPT_TOKENS }, (_, at) => (id * 31 + at * 7) % 32_000));
      scheduler.admit(
        {
          k: 'admit',
          id: id as RequestId,
          promptIds,
          generated: [],
          finished: [],
          samplingRow: row,
          bias: new Uint8Array(0),
          maxTokens,
          stopTokenIds: [2],
          ignoreEos: false,
          bestOf: 1,
          priority: 0,
          arrivalMs: id,
          turn: 0,
        },
        id % 2,
        now,
      );
    }
  };
  const results: Uint8Array[] = [];
  const firstPrefill: number[] = [];
  const prefill: number[] = [];
  const decode: number[] = [];
  let planBytes = 0;
  // Results are made outside the timed part; only their tokens differ from step to step.
  const answer = (plan: Uint8Array): void => {
    const words = planWords(plan);
    const samples = Array.from(sampledSlots(words), (slot) => ({
      slot,
      token: 100 + ((words[PLAN.step] ?? 0) % 1000),
      logprob: Number.NaN,
      top: 0,
    }));
    results.push(encodeResult(words[PLAN.step] ?? 0, words[PLAN.epoch] ?? 0, samples));
    planBytes = plan.byteLength;
  };
  for (let round = 1; round <= ROUNDS; round++) {
    const last = round === ROUNDS;
    admitAll(last ? mostTokens : tokensFor(SHORT_STEPS));
    let decodeSteps = 0;
    for (; scheduler.hasWork() && (!last || decodeSteps < WARMUP_STEPS + numSteps); now++) {
      const begin = performance.now();
      const plan = scheduler.schedule(now);
      const planned = performance.now();
      if (plan !== null) answer(plan);
      if (scheduler.stepsInFlight < 2 && plan !== null) continue;
      const result = results.shift();
      if (result === undefined) break;
      const middle = performance.now();
      scheduler.update(result, now);
      scheduler.takeOutputs();
      const us = (planned - begin + performance.now() - middle) * 1000;
      const samples = new Int32Array(result.buffer)[RESULT.numSamples] ?? 0;
      if (samples === numSequences) {
        if (++decodeSteps > WARMUP_STEPS && last) decode.push(us);
      } else if (decodeSteps === 0) {
        // Later steps are short of sequences that have ended.
        if (round === 1) firstPrefill.push(us);
        else if (round > WARM_ROUNDS) prefill.push(us);
      }
    }
  }
  return {
    bench: 'scheduler',
    sequences: numSequences,
    prompt_tokens: PROMPT_TOKENS,
    decode_us: percentiles(decode),
    prefill_us: percentiles(prefill),
    first_prefill_us: percentiles(firstPrefill),
    plan_bytes: planBytes,
    result_bytes: (RESULT.headerWords + numSequences * RESULT_SAMPLE.words) * 4,
    ...origin(),
  };
}

// The test runner loads every file below a folder called test; it must not run a benchmark.
if (argv[1] === fileURLToPath(import.meta.url) && env['NODE_TEST_CONTEXT'] === undefined) {
  stdout.write(`${JSON.stringify(measure(Number(argv[2] ?? 256), Number(argv[3] ?? 5000)))}\n`);
}
