/**
 * How often drafts of a network are right: the prompts of an evaluation set, one after the other and greedily, through the real scheduler and
 * engine with a fixed number of drafts a step. A draft behind the end of an answer counts as wrong.
 *
 * A prompt's first token comes of its prefill, so the first step that counts is the one behind it. Whoever lets drafts begin at the prompt
 * itself cuts the answers elsewhere: a float32 walk of the draft model so, over the prompts 1, 5, 9, .. of the demo's set without those that
 * have tools (36), accepts 129, 116, 100 and 88 of 132 steps (0.977 0.879 0.758 0.667), and 119, 105, 92 and 84 of 122 (0.975 0.861 0.754
 * 0.689) when it begins behind the first token. Over all 152 prompts, begun there, it accepts 0.979 0.877 0.797 0.727 of 561 steps, which is
 * what is counted here.
 *
 *   node dist/test/e2e/speculation/acceptance.js draft|eagle3|mtp [--target FOLDER] [--model FOLDER] [--tokens N] [--every N] [--device cuda]
 *
 * tells it of the demo model and the networks of the fixtures, or of others.
 */
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import type { RequestId } from '../../../actors/messages/ids.js';
import { DRAFTED } from '../../../actors/messages/requests.js';
import { packSamplingRow } from '../../../actors/messages/sampling.js';
import { Scheduler } from '../../../actors/scheduler/scheduler.js';
import type { BackendName, DraftNetwork } from '../../../native/index.js';
import { bytes, defaultOptions } from '../../actors/scheduler/rig.js';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { generation } from '../../helpers/engine/generation.js';
import { demoModel, fixture, openEngine } from '../../helpers/native/native-engine.js';

const BLOCKS = 128;
const MAX_LEN = 1024;
const MAX_TOKENS = 200;

export interface Measured {
  readonly prompts: number;
  readonly steps: number;
  /** Shares of the steps in which at least 1, 2, .. drafts were right. */
  readonly accepted: readonly number[];
  readonly tokensAStep: number;
  /** Answers with the tokens that the evaluation set has for the demo model. */
  readonly asRecorded: number;
}

interface Wanted {
  readonly method: DraftNetwork;
  readonly target: string;
  readonly model?: string;
  readonly tokens: number;
  readonly device?: BackendName;
  /** Drafts are accepted so, right or not. */
  readonly forcedRate?: number;
  /** Of the prompts every so-manieth is taken. */
  readonly every: number;
}

interface Line {
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[];
  readonly completion_ids: readonly number[];
}

interface Prompt {
  readonly ids: readonly number[];
  readonly recorded: readonly number[];
}

/** Ids of the prompts, as a daemon with this model makes them. */
async function promptsOf(target: string, every: number): Promise<Prompt[]> {
  const lines = readFileSync(fixture('eval', 'demo.jsonl'), 'utf8').trim().split('\n');
  const at = await startTestDaemon([`inference.model_name=${target}`]);
  const socket = await at.open();
  try {
    const prompts: Prompt[] = [];
    for (const [i, line] of lines.entries()) {
      const { messages, tools, completion_ids: recorded } = JSON.parse(line) as Line;
      if ((i + 1) % every !== 0) continue;
      const answer = (await socket.call('tokenize', { messages, ...(tools === undefined ? {} : { tools }) })) as unknown as {
        ids: number[];
      };
      prompts.push({ ids: answer.ids, recorded });
    }
    return prompts;
  } finally {
    await socket.close();
    await at.close();
  }
}

export async function acceptance({ method, target, model, tokens, every, device = 'cpu', forcedRate }: Wanted): Promise<Measured> {
  const prompts = await promptsOf(target, every);
  const engine = openEngine(
    target,
    {
      maxModelLen: MAX_LEN,
      maxBatchTokens: MAX_LEN,
      backend: device,
      ...(device === 'cuda' ? { kvDtype: 'auto', graphSizes: [1] } : {}),
      drafts: {
        ...{ maxTokens: tokens, ngramMin: 1, ngramMax: 1, method },
        ...(model === undefined ? {} : { modelPath: model }),
        ...(forcedRate === undefined ? {} : { forcedRate }),
      },
    },
    BLOCKS,
  );
  const { eos_token_id: end } = JSON.parse(readFileSync(`${target}/config.json`, 'utf8')) as { eos_token_id: number | number[] };
  const counts = new Array<number>(tokens + 1).fill(0);
  let emitted = 0;
  let asRecorded = 0;
  try {
    const scheduler = new Scheduler(
      {
        ...defaultOptions,
        ...{ numBlocks: BLOCKS, blockSize: 16, maxBatchTokens: MAX_LEN, maxModelLen: MAX_LEN, epoch: 1 },
        eosTokenIds: [end].flat(),
        drafts: { maxTokens: tokens, maxBatch: 100, rowCost: 0, freeRows: 1000, inBlocks: true },
      },
      undefined,
      1,
      () => tokens,
    );
    const result = new Uint8Array(1 << 20);
    for (const [i, { ids: prompt, recorded }] of prompts.entries()) {
      scheduler.admit(
        {
          ...{ k: 'admit', id: (i + 1) as RequestId, promptIds: bytes(prompt), generated: [], finished: [], bias: bytes([]) },
          samplingRow: new Uint8Array(
            packSamplingRow({ ...generation().sampling, temperature: 0 }, { seedLo: 0, seedHi: 0, topLogprobs: -1, promptLogprobs: -1 })
              .buffer,
          ),
          ...{
            maxTokens: MAX_TOKENS,
            stopTokenIds: [],
            ignoreEos: forcedRate !== undefined,
            bestOf: 1,
            priority: 0,
            arrivalMs: i,
            turn: 0,
          },
        },
        0,
        i,
      );
      let first = true;
      const answer: number[] = [];
      while (scheduler.hasWork()) {
        const plan = scheduler.schedule(i);
        if (plan !== null) engine.submit(plan);
        if (engine.pending() === 0) continue;
        scheduler.update(result.subarray(0, engine.wait(result, 60_000)), i);
        for (const message of scheduler.takeOutputs().tokens.values()) {
          if (!first) {
            const right = (message.drafted ?? []).filter((d) => d === DRAFTED).length;
            counts[right] = (counts[right] ?? 0) + 1;
            emitted += message.tokens.length;
          }
          first = false;
          answer.push(...message.tokens);
        }
      }
      if (isDeepStrictEqual(answer, recorded)) asRecorded++;
    }
  } finally {
    engine.close();
  }
  const steps = counts.reduce((a, b) => a + b, 0);
  const atLeast = (n: number): number => counts.slice(n).reduce((a, b) => a + b, 0) / steps;
  return {
    prompts: prompts.length,
    steps,
    accepted: Array.from({ length: tokens }, (_, i) => atLeast(i + 1)),
    tokensAStep: emitted / steps,
    asRecorded,
  };
}

/** The networks of the fixtures, for the demo model. */
export const fixtureNetworks = {
  draft: (): string => fixture('draft-model'),
  eagle3: (): string => fixture('eagle3-model'),
} as const;

if (process.argv[1]?.endsWith('acceptance.js')) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      target: { type: 'string', default: demoModel() },
      model: { type: 'string' },
      tokens: { type: 'string', default: '4' },
      every: { type: 'string', default: '1' },
      device: { type: 'string', default: 'cpu' },
    },
  });
  const method = positionals[0] as DraftNetwork;
  const model = values.model ?? (method === 'mtp' ? undefined : fixtureNetworks[method]());
  const measured = await acceptance({
    ...{ method, target: values.target, tokens: Number(values.tokens), every: Number(values.every) },
    ...(model === undefined ? {} : { model }),
    device: values.device as BackendName,
  });
  console.log(
    `${measured.prompts} prompts, ${measured.asRecorded} answered as recorded, ${measured.steps} steps, ${measured.tokensAStep.toFixed(2)} tokens a step`,
  );
  console.log(`accepted at least 1, 2, ..: ${measured.accepted.map((a) => a.toFixed(3)).join(' ')}`);
}
