/** Runs a real tokenizer actor and keeps what it sends. Models are folders: the shipped ones, or small ones written by a test. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Tokenizer } from 'tokenizers';
import type { CallReply, TokenizerCall } from '../../../actors/messages/calls.js';
import { bytesOf } from '../../../actors/messages/codec.js';
import type { Failure } from '../../../actors/messages/errors.js';
import type { RequestId } from '../../../actors/messages/ids.js';
import type {
  Abort,
  Admit,
  ChatMessage,
  Delta,
  Deltas,
  Encoded,
  Failed,
  GenerationParams,
  PromptInput,
  Routed,
  Stopped,
  Submit,
  Tokens,
} from '../../../actors/messages/requests.js';
import { defaultSampling, type SamplingParamName } from '../../../actors/messages/sampling.js';
import { createCounters, TOKENIZER_COUNTER } from '../../../actors/runtime/counters.js';
import { createTokenizerActor, type TokenizerHandlers, type TokenizerStart } from '../../../actors/tokenizer/actor.js';
import { grammarLimits } from '../../../actors/tokenizer/constrain/grammar-limits.js';
import type { Group } from '../../../actors/tokenizer/groups/group.js';
import { Workload } from '../../../actors/tokenizer/work/workload.js';
import { loadConfig } from '../../../config/load.js';
import type { ModelFolder } from '../../../config/models/model-folder.js';
import { packageRoot } from '../../../native/index.js';
import { generation } from '../../helpers/engine/generation.js';
import { recordOf, recordsOf, type TokenLogprob } from '../../helpers/engine/logprobs.js';

export const root = packageRoot();
export const demoPath = join(root, 'config/demo-model');
export const llama2Path = join(root, 'test/fixtures/golden/llama2-mha');

export function modelFolder(path: string, vocabSize: number, ids: { eos: readonly number[]; bos: number | null }): ModelFolder {
  return {
    path,
    name: 'test',
    source: 'folder',
    config: {},
    architecture: 'LlamaForCausalLM',
    format: 'BF16',
    vocabSize,
    hiddenSize: 64,
    pooling: { mode: 'last' },
    maxPositions: 4096,
    maxModelLen: 4096,
    maxInputLength: 4095,
    maxTotalTokens: 4096,
    eosTokenIds: ids.eos,
    bosTokenId: ids.bos,
    generation: {},
    sizeBytes: 0,
  };
}

export const demoModel = modelFolder(demoPath, 4096, { eos: [4089, 4092], bos: 4088 });
export const llama2Model = modelFolder(llama2Path, 320, { eos: [2], bos: 1 });

const folders: string[] = [];
process.on('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** A folder with these files; values that are no strings are written as JSON. Removed at exit. */
export function writeModel(files: Readonly<Record<string, unknown>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'inferd-tokenizer-'));
  folders.push(folder);
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));
  }
  return folder;
}

/** The library's own tokenizer, as the oracle. */
export function oracle(folder: string): Tokenizer {
  return Tokenizer.fromFile(join(folder, 'tokenizer.json'));
}

export async function oracleIds(tokenizer: Tokenizer, text: string, addSpecialTokens = false): Promise<number[]> {
  return (await tokenizer.encode(text, null, { addSpecialTokens })).getIds();
}

export function sampling(values: Partial<Record<SamplingParamName, number>> = {}): GenerationParams['sampling'] {
  return { ...defaultSampling, ...values };
}

export function params(values: Partial<GenerationParams> = {}): GenerationParams {
  return generation({ sampling: sampling(), ...values });
}

export type FrontMessage = Encoded | Routed | Deltas | Failed | CallReply;
export type SchedulerMessage = Admit | Abort | Stopped;

export function id(n: number): RequestId {
  return n as RequestId; // tests number requests themselves
}

export function int32(bytes: Uint8Array | undefined): number[] {
  if (bytes === undefined) throw new Error('no bytes');
  return [...new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4)];
}

/** A call to encode or decode. */
export type Question =
  | { readonly k: 'encode'; readonly prompt: PromptInput }
  | { readonly k: 'decode'; readonly ids: readonly number[]; readonly skipSpecialTokens: boolean };

/** Calls are numbered with the requests; those of a test are below. */
const CALLS = 1000;

type TestGroup = Group & { alive: boolean };

export class Harness {
  readonly front: FrontMessage[] = [];
  readonly scheduler: SchedulerMessage[] = [];
  /** Every message in the order of sending. */
  readonly order: string[] = [];
  /** What it publishes. */
  readonly counters = createCounters(TOKENIZER_COUNTER.cells);
  handlers!: TokenizerHandlers;
  /** With the group that each went to. */
  readonly sent: { readonly group: number; readonly message: SchedulerMessage }[] = [];
  readonly #groups: TestGroup[] = [];
  /** The engine group that answers, and takes new requests while it lives. */
  group!: TestGroup;
  #call = 0;
  #waiting: (() => void)[] = [];

  static async start(model: ModelFolder, limits: Partial<TokenizerStart['limits']> = {}, numGroups = 1): Promise<Harness> {
    const harness = new Harness();
    for (let index = 0; index < numGroups; index++) harness.#groups.push(harness.#newGroup(index));
    harness.select(0);
    const all: TokenizerStart['limits'] = {
      maxModelLen: 4096,
      maxInputLength: 4095,
      maxTotalTokens: 4096,
      maxTemplateMs: 250,
      maxTemplateOutputBytes: 8 * 2 ** 20,
      maxTemplateBytes: 2 ** 20,
      ...limits,
    };
    harness.handlers = await createTokenizerActor(
      {
        model,
        index: 0,
        limits: all,
        numGroups,
        blockSize: 16,
        parsers: { toolCalls: 'auto', reasoning: 'auto' },
        grammarLimits: grammarLimits(loadConfig({ env: {} }).config.structured_output),
      },
      {
        toFront: (m) => {
          harness.front.push(m);
          harness.#sent(`front ${m.k}`);
        },
        place: () => {
          const group = [harness.group, ...harness.#groups].find(({ alive }) => alive);
          return group === undefined ? null : { group };
        },
      },
      new Workload(harness.counters),
    );
    return harness;
  }

  #newGroup(index: number): TestGroup {
    return {
      index,
      alive: true,
      post: (message) => {
        this.scheduler.push(message);
        this.sent.push({ group: index, message });
        this.#sent(`scheduler ${message.k}`);
      },
    };
  }

  /** The group that answers from now on, and takes new requests. */
  select(index: number): void {
    const group = this.#groups[index];
    if (group === undefined) throw new Error(`no group ${index}`);
    this.group = group;
  }

  /** Requests then go to the first group that is left. */
  endGroup(index: number): void {
    const old = this.#groups[index];
    if (old === undefined) throw new Error(`no group ${index}`);
    old.alive = false;
    this.handlers.groupLeft(old);
  }

  beginGroup(index: number): void {
    const group = this.#newGroup(index);
    this.#groups[index] = group;
    this.handlers.groupCame(group);
  }

  /** The only engine group ends, and a new one takes its place. */
  restartEngine(): void {
    this.endGroup(0);
    this.beginGroup(0);
    this.select(0);
  }

  #sent(what: string): void {
    this.order.push(what);
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Waits for messages, never for time. */
  async until(done: () => boolean): Promise<void> {
    while (!done()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  async call(message: Question, client = 0): Promise<CallReply> {
    const call = this.ask(message, client);
    const find = (): CallReply | undefined => this.front.find((m): m is CallReply => m.k === 'reply' && m.call === call);
    await this.until(() => find() !== undefined);
    return find()!; // until() waited for it
  }

  /** Sends a call and returns its number. */
  ask(message: Question, client = 0): RequestId {
    const call = id(CALLS + ++this.#call);
    this.handlers.fromFront({ ...message, call, client, size: 1 } as TokenizerCall); // these complete either kind
    return call;
  }

  /** Prompts and calls that it was handed and has let go of; each has the size 1 here. */
  get letGo(): number {
    return this.counters[TOKENIZER_COUNTER.letGo] ?? 0;
  }

  /** Ids of a prompt. Fails when the answer is an error. */
  async encode(prompt: PromptInput): Promise<number[]> {
    const reply = await this.call({ k: 'encode', prompt });
    if (!reply.ok) throw new Error(`encode failed: ${JSON.stringify(reply.failure)}`);
    return int32(reply.value as Uint8Array); // what the actor answers to encode
  }

  async encodeFailure(prompt: PromptInput): Promise<Failure> {
    const reply = await this.call({ k: 'encode', prompt });
    if (reply.ok) throw new Error('encode succeeded');
    return reply.failure;
  }

  chat(messages: readonly ChatMessage[], extra: Partial<Extract<PromptInput, { kind: 'chat' }>> = {}): Promise<number[]> {
    return this.encode({ kind: 'chat', messages, addGenerationPrompt: true, ...extra });
  }

  async decode(ids: readonly number[], skipSpecialTokens = false): Promise<string> {
    const reply = await this.call({ k: 'decode', ids, skipSpecialTokens });
    if (!reply.ok) throw new Error(`decode failed: ${JSON.stringify(reply.failure)}`);
    return reply.value as string; // what the actor answers to decode
  }

  submit(n: number, prompt: PromptInput, values: Partial<GenerationParams> = {}, client = 0): void {
    const message: Submit = { k: 'submit', id: id(n), prompt, params: params(values), arrivalMs: 1000 + n, turn: 0, client, size: 1 };
    this.handlers.fromFront(message);
  }

  /** Submits a text prompt and waits until it is admitted. */
  async admit(n: number, values: Partial<GenerationParams> = {}, text = 'Hello'): Promise<Admit> {
    this.submit(n, { kind: 'text', text, addSpecialTokens: false }, values);
    const find = (): Admit | undefined => this.scheduler.find((m): m is Admit => m.k === 'admit' && m.id === n);
    await this.until(() => find() !== undefined || this.failure(n) !== undefined);
    const admit = find();
    if (admit === undefined) throw new Error(`request ${n} failed: ${JSON.stringify(this.failure(n))}`);
    return admit;
  }

  /** One step: rows of (request, token, finish code, sequence index). */
  step(rows: readonly (readonly [number, number, number?, number?])[], extra: Partial<Tokens> = {}): void {
    this.handlers.fromScheduler(
      {
        k: 'tokens',
        ids: rows.map((r) => r[0]),
        tokens: rows.map((r) => r[1]),
        finishes: rows.map((r) => r[2] ?? 0),
        indices: rows.map((r) => r[3] ?? 0),
        ...extra,
      },
      this.group,
    );
  }

  failure(n: number): Failure | undefined {
    return this.front.find((m): m is Failed => m.k === 'failed' && m.id === n)?.failure;
  }

  deltas(n: number, index = 0): Delta[] {
    return this.front.flatMap((m) => (m.k === 'deltas' ? m.deltas : [])).filter((d) => d.id === n && d.index === index);
  }

  text(n: number, index = 0): string {
    return this.deltas(n, index)
      .map((d) => d.text)
      .join('');
  }
}

export function logprob(token: number, value: number, top: readonly (readonly [number, number])[] = []): TokenLogprob {
  return { token, logprob: value, rank: 1, top };
}

/** The columns of a Tokens message whose tokens all carry a record. */
export function withRecords(entries: readonly TokenLogprob[]): Pick<Tokens, 'logprobs' | 'logprobWords'> {
  return { logprobs: bytesOf(recordsOf(entries)), logprobWords: entries.map((entry) => recordOf(entry).length) };
}
