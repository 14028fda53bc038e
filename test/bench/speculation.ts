/**
 * What drafts gain, and what they cost: tokens a second of a model with random weights that decodes plainly and with drafts, of which a given
 * share is accepted whatever it says, through the real scheduler with two steps in flight.
 *
 *   node dist/test/bench/speculation.js FOLDER [--device cpu|cuda] [--method ngram|draft|eagle3|mtp] [--model FOLDER] [--rate 0.8]
 *     [--drafts 0,3,4] [--batch 1] [--prompt 1024] [--tokens 256] [--adaptive]
 *
 * Prompts repeat themselves: with "--method ngram --rate 1" a step has all its drafts and makes them for nothing, which times rows alone.
 * --adaptive: as many drafts as the daemon would ask for on a GPU. FOLDER and the other one hold a config.json each; the latter may be "head", for a head of EAGLE-3's with the sizes of the model.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { RequestId } from '../../actors/messages/ids.js';
import { packSamplingRow } from '../../actors/messages/sampling.js';
import { Scheduler } from '../../actors/scheduler/scheduler.js';
import type { BackendName, EngineOptions } from '../../native/index.js';
import { bytes, defaultOptions } from '../actors/scheduler/rig.js';
import { generation } from '../helpers/engine/generation.js';
import { engineOptions, openEngine } from '../helpers/native/native-engine.js';
import { tempFolder } from '../helpers/temp-folder.js';

const BLOCK = 16;
/** Tokens behind which a prompt repeats itself. */
const PERIOD = 64;
/** What the daemon has on a GPU. */
const daemons = { maxBatch: 64, rowCost: 0.1, freeRows: 185 };

const { values: v, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    device: { type: 'string', default: 'cpu' },
    method: { type: 'string', default: 'eagle3' },
    model: { type: 'string', default: 'head' },
    rate: { type: 'string', default: '0.8' },
    drafts: { type: 'string', default: '0,3,4' },
    batch: { type: 'string', default: '1' },
    prompt: { type: 'string', default: '1024' },
    tokens: { type: 'string', default: '256' },
    adaptive: { type: 'boolean', default: false },
  },
});
const target = positionals[0] ?? '';
const list = (text: string): number[] => text.split(',').map(Number);
const promptLen = Number(v.prompt);
const maxTokens = Number(v.tokens);
const maxModelLen = promptLen + maxTokens + 64;

/** One of the usual size: a vocabulary of a quarter, and the sizes of the model. */
function headFolder(): string {
  const config = JSON.parse(readFileSync(join(target, 'config.json'), 'utf8')) as { vocab_size: number };
  const folder = tempFolder();
  const own = { architectures: ['LlamaForCausalLMEagle3'], num_hidden_layers: 1, draft_vocab_size: Math.floor(config.vocab_size / 4) };
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, ...own }));
  return folder;
}

interface Run {
  readonly tokensASecond: number;
  readonly msAStep: number;
  readonly tokensAStep: number;
}

function run(batch: number, drafts: number): Run {
  const blocks = batch * (Math.ceil(maxModelLen / BLOCK) + 4) + 8;
  const method = v.method as NonNullable<NonNullable<EngineOptions['drafts']>['method']>;
  const modelPath = v.model === 'head' ? headFolder() : v.model;
  const cuda = v.device === 'cuda';
  const engine = openEngine(
    target,
    {
      ...engineOptions(target),
      ...{ backend: v.device as BackendName, loadDummy: true, kvDtype: 'auto', threads: 0, blockSize: BLOCK, maxSlots: batch, maxModelLen },
      maxBatchTokens: Math.max(2048, batch * (drafts + 1)),
      graphSizes: cuda ? [batch] : [],
      ...(drafts === 0
        ? {}
        : {
            drafts: {
              ...{ maxTokens: drafts, ngramMin: 1, ngramMax: 3, method, forcedRate: Number(v.rate) },
              ...(v.adaptive ? { maxRows: daemons.maxBatch } : {}),
              ...(method === 'draft' || method === 'eagle3' ? { modelPath } : {}),
            },
          }),
    },
    blocks,
  );
  const scheduler = new Scheduler(
    {
      ...defaultOptions,
      ...{ numBlocks: blocks, blockSize: BLOCK, maxSlots: batch, maxBatchTokens: Math.max(2048, batch * (drafts + 1)), maxModelLen },
      ...{ eosTokenIds: [], epoch: 1, enablePrefixCaching: false },
      drafts: drafts === 0 ? null : { maxTokens: drafts, inBlocks: method !== 'ngram', ...daemons },
    },
    undefined,
    1,
    v.adaptive ? undefined : () => drafts,
  );
  const vocab = engine.info().vocabSize;
  for (let i = 0; i < batch; i++) {
    const prompt = Array.from({ length: promptLen }, (_, at) => ((at % PERIOD) * 7919 + i * 104729) % vocab);
    const row = packSamplingRow(
      { ...generation().sampling, temperature: 0 },
      { seedLo: i, seedHi: 0, topLogprobs: -1, promptLogprobs: -1 },
    );
    scheduler.admit(
      {
        ...{ k: 'admit', id: (i + 1) as RequestId, promptIds: bytes(prompt), generated: [], finished: [], bias: bytes([]) },
        samplingRow: new Uint8Array(row.buffer),
        ...{ maxTokens, stopTokenIds: [], ignoreEos: true, bestOf: 1, priority: 0, arrivalMs: 0, turn: 0 },
      },
      0,
      0,
    );
  }
  const result = new Uint8Array(4 << 20);
  // Sequences that all decode, the first dozen steps left out, until one has all its tokens.
  let steps = 0;
  let tokens = 0;
  let warm = 0;
  let begin = 0;
  let end = 0;
  const given = new Map<number, number>();
  while (scheduler.hasWork()) {
    const plan = scheduler.schedule(steps);
    if (plan !== null) engine.submit(plan);
    if (plan !== null && scheduler.stepsInFlight < 2) continue;
    if (engine.pending() === 0) continue;
    scheduler.update(result.subarray(0, engine.wait(result, 60_000)), steps);
    if (engine.lastError?.() !== '') throw new Error(engine.lastError?.());
    let now = 0;
    for (const message of scheduler.takeOutputs().tokens.values()) {
      for (const id of message.ids) given.set(id, (given.get(id) ?? 0) + 1);
      now += message.ids.length;
    }
    const all = given.size === batch && Math.max(...given.values()) < maxTokens;
    if (all && ++warm === 12) begin = performance.now();
    else if (all && warm > 12) {
      end = performance.now();
      steps++;
      tokens += now;
    }
  }
  engine.close();
  return { tokensASecond: (tokens / (end - begin)) * 1000, msAStep: (end - begin) / steps, tokensAStep: tokens / steps / batch };
}

for (const batch of list(v.batch)) {
  let plain = 0;
  for (const drafts of list(v.drafts)) {
    const { tokensASecond, msAStep, tokensAStep } = run(batch, drafts);
    if (drafts === 0) plain = tokensASecond;
    const gain = plain > 0 ? `, ${(tokensASecond / plain).toFixed(2)}x` : '';
    console.log(
      `batch ${batch}, ${drafts} drafts by ${drafts === 0 ? 'none' : v.method}: ${tokensASecond.toFixed(0)} tokens/s, ` +
        `${msAStep.toFixed(3)} ms a step of ${tokensAStep.toFixed(2)} tokens${gain}`,
    );
  }
}
