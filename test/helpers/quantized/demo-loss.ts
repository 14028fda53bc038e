/**
 * What a form of the demo model has lost, of the evaluation set: its own answers through a daemon, and how far its distributions are from
 * those of the model as it is at each token of the answers that another implementation gave.
 */
import { readFileSync } from 'node:fs';
import { ROW_FLAG } from '../../../actors/messages/step.js';
import { Divergence } from '../../../daemon/cli/eval/divergence.js';
import { answerText } from '../../../daemon/cli/eval/eval-set.js';
import type { NativeEngine } from '../../../native/index.js';
import { connect } from '../../../rpc/client/node.js';
import type { ChatCompletionParams } from '../../../rpc/client/types.js';
import { startTestDaemon } from '../daemon/daemon.js';
import { blockSets, demoModel, fixture, openEngine, runStep } from '../native/native-engine.js';

interface Case {
  readonly task: string;
  readonly messages: unknown[];
  readonly tools?: unknown[];
  readonly got: string;
  readonly completion_ids: number[];
}

/** Stories may go on as they like, so only their prompts are asked for; each of the other answers has one right form. */
const open = 'story';
const blockSize = 16;
/** The longest case and its answer take 20 blocks. */
const maxModelLen = 512;
/** Tokens of a step where nobody asks for fewer. */
const stepRows = 256;

const cases = readFileSync(fixture('eval', 'demo.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Case);

export interface Answers {
  /** Of the answers that have one right form, those that are another one. */
  readonly wrong: readonly string[];
  /** How many have one. */
  readonly asked: number;
  /** The ids of each prompt, of all. */
  readonly prompts: readonly (readonly number[])[];
}

/** Asks a daemon all questions at once. `sets`: of its configuration. */
export async function demoAnswers(sets: readonly string[]): Promise<Answers> {
  const at = await startTestDaemon(sets);
  try {
    const client = await connect({ url: at.ws });
    const answers = await Promise.all(
      cases.map(async ({ task, messages, tools }) => {
        const most = task === open ? { max_tokens: 1 } : {};
        const body = { messages, temperature: 0, return_token_ids: true, ...most, ...(tools ? { tools } : {}) };
        const answer = await client.chat.completions.create(body as unknown as ChatCompletionParams & { stream: false });
        return { text: answerText(answer.choices[0]?.message ?? {}), prompt: answer.prompt_token_ids ?? [] };
      }),
    );
    await client.close();
    const judged = cases.flatMap(({ task, got }, i) => (task === open ? [] : [{ got, text: answers[i]?.text }]));
    const wrong = judged.filter(({ got, text }) => text !== got);
    return {
      wrong: wrong.map(({ got, text }) => `${JSON.stringify(text)} instead of ${JSON.stringify(got)}`),
      asked: judged.length,
      prompts: answers.map(({ prompt }) => prompt),
    };
  } finally {
    await at.close();
  }
}

/** An engine with room for one case. The caller closes it. */
export const openDemo: typeof openEngine = (path, options = {}) =>
  openEngine(path, { maxSlots: 1, maxModelLen, ...options }, maxModelLen / blockSize);

/** The logits ahead of each token of the answers, case by case, in steps of `rows` tokens; those of a case when it is done. */
function* forced(engine: NativeEngine, prompts: Answers['prompts'], rows: number): Generator<readonly Float32Array[]> {
  for (const [i, { completion_ids: answer }] of cases.entries()) {
    const prompt = prompts[i] ?? [];
    const tokens = [...prompt, ...answer];
    const blocks = blockSets(0, 0, Math.ceil(tokens.length / blockSize));
    runStep(engine, { freed: i === 0 ? [] : [0], newSlots: [{ slot: 0, tokens, sampling: { topLogprobs: 0 } }], blockSets: blocks });
    const logits: Float32Array[] = [];
    const first = prompt.length - 1;
    for (let start = 0; start < tokens.length - 1; ) {
      const end = start < first ? first : tokens.length - 1;
      const count = Math.min(rows, end - start);
      const step = runStep(engine, { rows: [{ slot: 0, start, count, flags: start < first ? 0 : ROW_FLAG.rawLogits }] });
      logits.push(...step.logits.map(({ values }) => values));
      start += count;
    }
    yield logits;
  }
}

/** The logits of the model as it is, in float32 on the CPU. */
export function demoLogits(prompts: Answers['prompts']): readonly (readonly Float32Array[])[] {
  const engine = openDemo(demoModel(), { weightDtype: 'f32' });
  const logits = [...forced(engine, prompts, stepRows)];
  engine.close();
  return logits;
}

export interface Loss {
  /** The mean over all answers of the mean divergence over the tokens of each, in nats: as the published figures are made. */
  readonly kl: number;
  /** Share of the tokens of all answers where both have the same likeliest one; and of those with one right form. */
  readonly sameTop: number;
  readonly sameTopOfExact: number;
}

/** @param plain what demoLogits gave for these prompts */
export function demoLoss(engine: NativeEngine, prompts: Answers['prompts'], plain: ReturnType<typeof demoLogits>, rows = stepRows): Loss {
  const each: { readonly exact: boolean; readonly tokens: number; readonly kl: number; readonly same: number }[] = [];
  for (const logits of forced(engine, prompts, rows)) {
    const wanted = plain[each.length] ?? [];
    const sum = new Divergence();
    for (const [k, values] of logits.entries()) sum.add(values, wanted[k] ?? new Float32Array(), null);
    const { tokens, kl, same_top: share } = sum.report();
    if (tokens !== wanted.length) throw new Error(`logits of ${tokens} tokens and not ${wanted.length}`);
    each.push({ exact: cases[each.length]?.task !== open, tokens, kl: kl.mean, same: share * tokens });
  }
  const share = (of: typeof each): number => of.reduce((sum, a) => sum + a.same, 0) / of.reduce((sum, a) => sum + a.tokens, 0);
  return {
    kl: each.reduce((sum, a) => sum + a.kl, 0) / each.length,
    sameTop: share(each),
    sameTopOfExact: share(each.filter(({ exact }) => exact)),
  };
}
