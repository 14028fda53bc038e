/**
 * The tokenizer actor: prompts to token ids, tokens back to text. Runs on the event loop of its own thread; host.ts connects the two
 * functions of `out` and the handlers to ports. One request lives in one tokenizer from Submit to its last Delta.
 *
 *   Submit --(thread pool encodes)--> Encoded to the front, then Admit to the scheduler
 *   Tokens --> at most one Deltas message to the front, Stopped to the scheduler for each stop string found
 *   Abort  --> forgets the request; the scheduler hears of it only if it had heard of the request
 *   encode, decode --> one reply to the front, unless an Abort dropped the call
 *
 * Invariants: a request that is not in `#requests` is over, and nothing is sent for it. Decoding the tokens of requests never waits and makes no promise.
 * What is to be encoded or decoded waits for nothing once an Abort has named it, and is then told as let go (work/workload.ts).
 * The number of requests is bounded by the front, which admits no more than the queue and the running sequences take; so is the size of
 * what is held for requests and calls.
 * A request whose engine group is over is admitted once more, with the tokens it already has: to another group at once when nothing of it
 * was answered yet, else to its own when that is there again, since it may be what ended it. The second time it fails.
 */
import type { ModelFolder } from '../../config/models/model-folder.js';
import type { CallReply, TokenizerCall } from '../messages/calls.js';
import { bytesOf, int32Of } from '../messages/codec.js';
import { NO_GRAMMAR } from '../messages/constraint.js';
import { type Failure, InferdError } from '../messages/errors.js';
import type { RequestId } from '../messages/ids.js';
import { RecordReader, recordWordsAt } from '../messages/logprobs.js';
import type {
  Abort,
  Delta,
  Deltas,
  Encoded,
  Failed,
  Handed,
  Pooled,
  PromptInput,
  PromptLogprobs,
  Routed,
  Submit,
  TokenIds,
  TokenNames,
  Tokens,
} from '../messages/requests.js';
import type { TextBounds } from '../messages/text-bounds.js';
import { Cancellation } from '../runtime/cancellation.js';
import { admitMessage, type LengthLimits, longestPrompt, promptTooLong, resolveMaxTokens, truncated } from './admission.js';
import { Answers, isOpened, type ParserChoice } from './answer/answers.js';
import { constrainsCalls, type ToolsOffered } from './answer/tool-constraint.js';
import type { GrammarLimits } from './constrain/grammar-limits.js';
import { type ChatStyle, Grammars } from './constrain/grammars.js';
import { decodeAll, decodeInTurns } from './decode/detokenizer.js';
import { RequestState, type SequenceState } from './decode/request-state.js';
import { StopStrings } from './decode/stop-strings.js';
import { NamesToTell, namesOf } from './decode/token-names.js';
import { type EncoderParts, PromptEncoder } from './encode/encode.js';
import { TooManyIds } from './encode/library-encoder.js';
import { loadVocabulary, type Vocabulary } from './encode/vocab.js';
import type { FromScheduler, Group, Placed } from './groups/group.js';
import { checkIds, checkTokenIds } from './model/token-ids.js';
import type { TemplateLimits } from './template/chat-template.js';
import { PromptQueue } from './work/prompt-queue.js';
import type { Asker } from './work/waiting-line.js';
import type { Workload } from './work/workload.js';

export interface TokenizerStart {
  readonly model: ModelFolder;
  /** Number of this tokenizer among its kind. */
  readonly index: number;
  readonly limits: LengthLimits & TemplateLimits;
  readonly parsers: ParserChoice;
  /** Of engine groups, and tokens in a KV block of theirs. */
  readonly numGroups: number;
  readonly blockSize: number;
  readonly grammarLimits: GrammarLimits;
}

/** Where messages go; these keep order and never block or throw. */
export interface TokenizerOut {
  /** Chooses the group of a request with this prompt; null while there is none: `groupCame` tells of the next one. */
  place(promptIds: Int32Array, adapter?: number): Placed | null;
  toFront(message: Encoded | Routed | Deltas | Failed | CallReply): void;
}

/** None of these throws because of what a message says. */
export interface TokenizerHandlers {
  fromFront(message: Submit | Abort | TokenizerCall): void;
  fromScheduler(message: FromScheduler, group: Group): void;
  /** A group is there, for the first time or again, and knows no request. */
  groupCame(group: Group): void;
  /** A group is over. */
  groupLeft(group: Group): void;
  /** What it takes, for the front. */
  readonly bounds: TextBounds;
  /** Requests held. */
  size(): number;
  /** The actor is over. */
  close(): void;
}

/** Loads the model's tokenizer. @throws Error with one sentence that names the file which cannot be used. */
export async function createTokenizerActor(start: TokenizerStart, out: TokenizerOut, workload: Workload): Promise<TokenizerHandlers> {
  const vocabulary = await loadVocabulary(start.model.path, start.model.vocabSize);
  const parts = { queue: new PromptQueue(), workload };
  return new TokenizerActor(start, out, { vocabulary, encoder: new PromptEncoder(vocabulary, start.model, start.limits, parts), ...parts });
}

interface ActorParts extends EncoderParts {
  readonly vocabulary: Vocabulary;
  readonly encoder: PromptEncoder;
}

/** Tokens at the end of a prompt that hold a marker there, however it is spelled. */
const PROMPT_END = 16;

/** A request may be admitted again after this many ends of its group. */
const MAX_RESTARTS = 1;

type Admitted = NonNullable<RequestState['admitted']>;

class TokenizerActor implements TokenizerHandlers {
  readonly #start: TokenizerStart;
  readonly #out: TokenizerOut;
  readonly #vocabulary: Vocabulary;
  readonly #encoder: PromptEncoder;
  readonly #grammars: Grammars;
  readonly #names: NamesToTell;
  readonly #answers: Answers;
  readonly #queue: PromptQueue;
  readonly #workload: Workload;
  readonly #requests = new Map<RequestId, RequestState>();
  /** Of the requests that are being encoded and of the calls that are not answered: fires when nobody wants that any more. */
  readonly #wanted = new Map<RequestId, Cancellation>();

  constructor(start: TokenizerStart, out: TokenizerOut, { vocabulary, encoder, queue, workload }: ActorParts) {
    this.#start = start;
    this.#out = out;
    this.#vocabulary = vocabulary;
    this.#encoder = encoder;
    this.#queue = queue;
    this.#workload = workload;
    this.#grammars = new Grammars(vocabulary.table, start.model.eosTokenIds, start.grammarLimits);
    this.#names = new NamesToTell(vocabulary.table);
    this.#answers = new Answers(vocabulary.table, start.parsers);
  }

  get bounds(): TextBounds {
    return this.#vocabulary.bounds;
  }

  size(): number {
    return this.#requests.size;
  }

  close(): void {
    for (const id of [...this.#requests.keys()]) this.#forget(id);
    this.#encoder.close();
    this.#grammars.close();
  }

  fromFront(message: Submit | Abort | TokenizerCall): void {
    switch (message.k) {
      case 'submit':
        void this.#submit(message);
        return;
      case 'abort':
        this.#abort(message.ids);
        return;
      case 'encode':
        void this.#reply(message.call, message, async (asker) => bytesOf(await this.#encode(message.prompt, asker)));
        return;
      case 'decode':
        void this.#reply(message.call, message, (asker) => this.#decode(message.ids, message.skipSpecialTokens, asker));
        return;
      case 'names':
        void this.#reply(message.call, message, (asker) => this.#namesOf(message.ids, asker));
        return;
      default:
        message satisfies never;
    }
  }

  fromScheduler(message: FromScheduler, group: Group): void {
    if (message.k === 'tokens') this.#tokens(message, group);
    else if (this.#in(group, message.id) !== undefined) this.#fail(message.id, message.failure);
  }

  groupCame(group: Group): void {
    for (const request of [...this.#requests.values()]) {
      if (request.admitted === null || request.group?.alive) continue;
      if (request.group === null) this.#admit(request, request.admitted);
      else if (request.group.index === group.index || !request.begun) this.#admitAgain(request, request.admitted, { group });
    }
  }

  groupLeft(group: Group): void {
    for (const request of [...this.#requests.values()]) {
      if (request.admitted === null || request.group !== group || request.begun) continue;
      const placed = this.#out.place(request.admitted.promptIds, request.params.adapter);
      // As in #admit.
      if (placed !== null && request.group === group) this.#admitAgain(request, request.admitted, placed);
    }
  }

  /** A request that is in a group now. */
  #in(group: Group, id: RequestId): RequestState | undefined {
    const request = this.#requests.get(id);
    return request?.admitted != null && request.group === group ? request : undefined;
  }

  #admit(request: RequestState, admitted: Admitted): void {
    const placed = this.#out.place(admitted.promptIds, request.params.adapter);
    // A group that came while one was looked for was told of this request, too.
    if (placed !== null && !request.group?.alive) this.#admitTo(request, admitted, placed);
  }

  #admitAgain(request: RequestState, admitted: Admitted, placed: Placed): void {
    if (request.admissions <= MAX_RESTARTS) this.#admitTo(request, admitted, placed);
    else {
      const message = 'The engine failed twice during this request';
      this.#fail(request.id, { kind: 'engine_failure', message, data: { retriable: true } });
    }
  }

  #admitTo(request: RequestState, admitted: Admitted, { group, newTokens }: Placed): void {
    const { model, numGroups } = this.#start;
    group.post(admitMessage(request, admitted, model.eosTokenIds, newTokens));
    request.admissions++;
    request.group = group;
    if (numGroups > 1) this.#out.toFront({ k: 'routed', id: request.id, group: group.index });
  }

  async #submit(message: Submit): Promise<void> {
    const { id, prompt, params } = message;
    const stops = new StopStrings(params.stop);
    const { table } = this.#vocabulary;
    const request = new RequestState(message, { stops, table, names: this.#names });
    this.#requests.set(id, request);
    const asker = this.#take(id, message);
    try {
      checkTokenIds(params, table.size);
      // The end of a prompt that is cut is known only when all of it is encoded.
      const maxIds = params.truncatePromptTokens === null ? longestPrompt(params.maxTokens, this.#start.limits) : undefined;
      const promptIds = truncated(await this.#encode(prompt, asker, maxIds), params.truncatePromptTokens);
      if (this.#requests.get(id) !== request) return; // aborted meanwhile
      const maxTokens = resolveMaxTokens(promptIds.length, params.maxTokens, this.#start.limits);
      const constrained = params.constraint !== null || (prompt.kind === 'chat' && constrainsCalls(prompt));
      const grammar = constrained ? await this.#grammars.hold(params.constraint, this.#style(prompt, promptIds), asker) : NO_GRAMMAR;
      if (this.#requests.get(id) !== request) {
        this.#grammars.release(grammar);
        return;
      }
      request.admitted = { promptIds, maxTokens, grammar, endIds: this.#endIds(prompt) };
      this.#readAnswer(request, prompt, promptIds);
      const whole = prompt.kind === 'text' && promptIds.length > 0 && params.truncatePromptTokens === null;
      const promptText = params.echo
        ? { promptText: whole ? prompt.text.toWellFormed() : decodeAll(table, promptIds, params.skipSpecialTokens) }
        : {};
      // The scheduler first: waking a thread takes some tens of microseconds, and only it has to act.
      this.#admit(request, request.admitted);
      this.#out.toFront({ k: 'encoded', id, promptIds: bytesOf(promptIds), maxTokens, ...promptText });
    } catch (error) {
      const { limits } = this.#start;
      const why = error instanceof TooManyIds ? promptTooLong(error.atLeast, params.maxTokens, limits) : error;
      if (this.#requests.get(id) === request) this.#fail(id, failureOf(why));
    } finally {
      this.#letGo(id, message);
    }
  }

  #encode(prompt: PromptInput, asker: Asker, maxIds?: number): Promise<Int32Array> {
    const taken = prompt.kind === 'chat' ? this.#answers.prepared(prompt, this.#encoder.templateSource(prompt)) : prompt;
    return this.#encoder.encode(taken, asker, maxIds);
  }

  /** The last characters of a prompt. */
  #promptEnd(promptIds: Int32Array): string {
    return decodeAll(this.#vocabulary.table, promptIds.subarray(-PROMPT_END), false);
  }

  #style(prompt: PromptInput, promptIds: Int32Array): ChatStyle | null {
    if (prompt.kind !== 'chat') return null;
    const template = this.#encoder.templateSource(prompt);
    const { reasoning, units } = this.#answers.formatFor(template);
    const opened = reasoning !== null && isOpened(reasoning, this.#promptEnd(promptIds));
    return { chat: { tools: toolsOf(prompt), template, parsers: this.#start.parsers, opened }, markerIds: [...units.keys()] };
  }

  /** Of chats: what ends an answer besides what the model's files say. */
  #endIds(prompt: PromptInput): readonly number[] {
    return prompt.kind === 'chat' ? this.#answers.formatFor(this.#encoder.templateSource(prompt)).endIds : [];
  }

  #readAnswer(request: RequestState, prompt: PromptInput, promptIds: Int32Array): void {
    if (prompt.kind !== 'chat') return;
    const promptEnd = (): string => this.#promptEnd(promptIds);
    const reading = this.#answers.readingOf(prompt, this.#encoder.templateSource(prompt), promptEnd);
    if (reading !== null) request.readWith(reading);
  }

  #take(id: RequestId, { client }: Handed): Asker {
    const cancellation = new Cancellation();
    this.#wanted.set(id, cancellation);
    return { client, cancellation };
  }

  #letGo(id: RequestId, { size }: Handed): void {
    this.#wanted.delete(id);
    this.#workload.letGo(size);
  }

  #abort(ids: readonly RequestId[]): void {
    const known = new Map<Group, RequestId[]>();
    for (const id of ids) {
      this.#wanted.get(id)?.cancel();
      const group = this.#requests.get(id)?.group;
      if (group?.alive) known.set(group, [...(known.get(group) ?? []), id]);
      this.#forget(id);
    }
    for (const [group, own] of known) group.post({ k: 'abort', ids: own });
  }

  #forget(id: RequestId): void {
    this.#grammars.release(this.#requests.get(id)?.admitted?.grammar ?? NO_GRAMMAR);
    this.#requests.delete(id);
  }

  #fail(id: RequestId, failure: Failure): void {
    this.#forget(id);
    this.#out.toFront({ k: 'failed', id, failure });
  }

  #tokens(message: Tokens, group: Group): void {
    const { ids, indices, tokens, finishes, cumulative, drafted } = message;
    const records = message.logprobs === undefined ? null : new RecordReader(message.logprobs, message.logprobWords ?? []);
    const requests: RequestState[] = [];
    const touched: SequenceState[] = [];
    for (let i = 0; i < ids.length; i++) {
      records?.next(i);
      const request = this.#in(group, ids[i]! as RequestId); // the columns have one length; ids are request ids
      const sequence = request?.sequences[indices[i]!];
      if (request === undefined || sequence === undefined || sequence.finished) continue;
      const step = {
        token: tokens[i]!,
        finish: finishes[i]!,
        logprob: records?.logprob ?? 0,
        record: records?.record ?? null,
        cumulative: cumulative?.[i],
        drafted: drafted?.[i] ?? 0,
      };
      if (sequence.push(step)) group.post({ k: 'stopped', id: request.id, index: sequence.index });
      if (!sequence.listed) {
        sequence.listed = true;
        touched.push(sequence);
        requests.push(request);
      }
    }
    // Before the requests that end here are forgotten.
    const started = message.started?.filter((s) => this.#startsNow(this.#in(group, s.id)));
    const prompt = message.prompt?.flatMap((p) => this.#promptLogprobs(this.#in(group, p.id), p));
    const deltas: Delta[] = message.pooled?.flatMap((p) => this.#pooled(this.#in(group, p.id), p)) ?? [];
    for (let i = 0; i < touched.length; i++) {
      const request = requests[i]!; // pushed in pairs
      const delta = touched[i]!.takeDelta(request.id);
      if (delta === null) continue;
      deltas.push(delta);
      if (delta.finish !== undefined && request.over) this.#forget(request.id);
    }
    if (deltas.length === 0 && !started?.length && !prompt?.length) return;
    const names = this.#names.take();
    this.#out.toFront({
      k: 'deltas',
      deltas,
      ...(started?.length ? { started } : {}),
      ...(prompt?.length ? { prompt } : {}),
      ...(names === null ? {} : { names }),
    });
  }

  /** The only delta of its request, which is over then. */
  #pooled(request: RequestState | undefined, { id, state }: Pooled): Delta[] {
    if (request === undefined) return [];
    this.#forget(id);
    return [{ id, index: 0, text: '', tokens: [], finish: 'stop', pooled: state }];
  }

  /** True the first time; a request that was admitted again starts again. */
  #startsNow(request: RequestState | undefined): boolean {
    if (request === undefined || request.started) return false;
    request.started = true;
    return true;
  }

  /** Without what was sent before the engine restarted. */
  #promptLogprobs(request: RequestState | undefined, { id, first, logprobs }: PromptLogprobs): PromptLogprobs[] {
    if (request === undefined) return [];
    const records = int32Of(logprobs);
    let position = first;
    let fresh = 0;
    for (let at = 0; at < records.length; at += recordWordsAt(records, at), position++) {
      if (position < request.promptPosition) fresh = at + recordWordsAt(records, at);
    }
    if (fresh === records.length) return [];
    const told = Math.max(first, request.promptPosition);
    request.promptPosition = position;
    this.#names.see(records.subarray(fresh));
    return [{ id, first: told, logprobs: bytesOf(records.subarray(fresh)) }];
  }

  async #reply(call: RequestId, handed: Handed, work: (asker: Asker) => Promise<unknown>): Promise<void> {
    const asker = this.#take(call, handed);
    try {
      const value = await work(asker);
      if (!asker.cancellation.cancelled) this.#out.toFront({ k: 'reply', call, ok: true, value });
    } catch (error) {
      if (!asker.cancellation.cancelled) this.#out.toFront({ k: 'reply', call, ok: false, failure: failureOf(error) });
    } finally {
      this.#letGo(call, handed);
    }
  }

  async #decode(ids: TokenIds, skipSpecialTokens: boolean, asker: Asker): Promise<string> {
    const { table } = this.#vocabulary;
    const turn = (): Promise<void> => this.#queue.pass(asker);
    await turn();
    return decodeInTurns(table, checkIds(ids, table.size, 'ids'), skipSpecialTokens, turn);
  }

  async #namesOf(ids: readonly number[], asker: Asker): Promise<TokenNames> {
    const { table } = this.#vocabulary;
    await this.#queue.pass(asker);
    return namesOf(table, checkIds(ids, table.size, 'ids'));
  }
}

/** Without what does not matter to a grammar. */
function toolsOf({ tools, toolChoice, parallelToolCalls }: Extract<PromptInput, { kind: 'chat' }>): ToolsOffered {
  return {
    ...(tools === undefined ? {} : { tools }),
    ...(toolChoice === undefined ? {} : { toolChoice }),
    ...(parallelToolCalls === undefined ? {} : { parallelToolCalls }),
  };
}

/** Faults of our own say nothing of what happened inside. */
function failureOf(error: unknown): Failure {
  return error instanceof InferdError ? error.failure : { kind: 'internal' };
}
