/**
 * What the tokenizer remembers of one request: its ids (for a second admission after the engine restarted) and, for each of its
 * sequences, how far its text was decoded, searched for stop strings and sent. Used by actor.ts only, one thread.
 *
 *   token --Detokenizer--> text --StopMatcher--> text to show --> #text ---takeDelta---> Delta
 *     |                                              |              tokens, logprobs --^
 *     └-- marker --------------------------------> AnswerReader --> content, reasoning, calls
 *
 * A delta carries all tokens since the last one, also those whose text is hidden or held back, so tokens add up exactly. Answers to chat
 * prompts are read (answer/): control tokens that mark calls or reasoning reach the reader even where they are hidden, and never the
 * text; no stop string contains one.
 */
import type { RequestId } from '../../messages/ids.js';
import { LogprobColumn } from '../../messages/logprobs.js';
import { type Delta, DRAFTED, FINISH, type FinishReason, type GenerationParams, type Submit } from '../../messages/requests.js';
import type { AnswerReader } from '../answer/answer-reader.js';
import type { AnswerReading } from '../answer/answers.js';
import type { Group } from '../groups/group.js';
import type { TokenTable } from '../model/byte-decoder.js';
import { Detokenizer } from './detokenizer.js';
import { StopMatcher, type StopStrings } from './stop-strings.js';
import type { NamesToTell } from './token-names.js';

/** Everything its sequences share. */
export interface SequenceContext {
  readonly params: GenerationParams;
  readonly stops: StopStrings;
  readonly table: TokenTable;
  readonly names: NamesToTell;
}

/** One token of one step, as the scheduler reported it. */
export interface StepToken {
  readonly token: number;
  /** FINISH code. */
  readonly finish: number;
  /** 0 without a record. */
  readonly logprob: number;
  /** Its record (logprobs.ts), a view that is copied; null when it came without one. */
  readonly record: Int32Array | null;
  /** Sum of the sequence's logprobs up to this token, where the request is ranked by it. */
  readonly cumulative: number | undefined;
  /** As in Tokens. */
  readonly drafted: number;
}

const noUnits: AnswerReading['units'] = new Map();

export class SequenceState {
  readonly index: number;
  /** Every token of the answer, the ending one included. */
  readonly generated: number[] = [];
  finished = false;
  /** Already among the sequences of this step; `takeDelta` clears it. */
  listed = false;
  /** Sum of logprobs of `generated`: the scheduler's when it ranks the sequences, else of the logprobs that came. */
  cumulative = 0;
  readonly #context: SequenceContext;
  readonly #detokenizer: Detokenizer;
  readonly #matcher: StopMatcher | null;
  /** Null: the answer is content as it is. */
  #reader: AnswerReader | null = null;
  #units: AnswerReading['units'] = noUnits;
  #text = '';
  /** Something was decoded since the last delta, shown or held back by the reader. */
  #decoded = false;
  #tokens: number[] = [];
  #reasoningTokens = 0;
  /** Drafts since the last delta. */
  #accepted = 0;
  #rejected = 0;
  readonly #logprobs = new LogprobColumn();
  #finish: FinishReason | null = null;
  #stopReason: string | number | null = null;

  constructor(index: number, context: SequenceContext) {
    this.index = index;
    this.#context = context;
    this.#detokenizer = new Detokenizer(context.table, context.params.skipSpecialTokens);
    this.#matcher = context.stops.list.length === 0 ? null : new StopMatcher(context.stops, context.params.includeStop);
  }

  /** Has the answer read. To be called before the first token. */
  readWith({ newReader, units }: AnswerReading): void {
    this.#reader = newReader();
    if (this.#context.params.skipSpecialTokens) this.#units = units;
  }

  /** Takes the next token. @returns true when a stop string ended the sequence although the scheduler goes on with it. */
  push(step: StepToken): boolean {
    const { params } = this.#context;
    const { token, finish } = step;
    this.generated.push(token);
    this.#tokens.push(token);
    if (step.drafted === DRAFTED) this.#accepted++;
    else this.#rejected += step.drafted;
    this.cumulative = ranksSequences(params) ? (step.cumulative ?? 0) : this.cumulative + step.logprob;
    if (step.record !== null && params.topLogprobs >= 0) {
      this.#logprobs.add(step.record);
      this.#context.names.see(step.record);
    }
    const hidden = finish === FINISH.eos ? params.skipSpecialTokens : finish === FINISH.stopToken && !params.includeStop;
    const reasoned = this.#reader?.reasons ?? false;
    const unit = this.#units.get(token);
    // The end of the sequence, where it is shown, stands behind all that is read.
    const shownEnd = this.#reader !== null && finish === FINISH.eos && !hidden ? this.#detokenizer.push(token) : '';
    const silent = hidden || shownEnd !== '';
    const stopped = unit === undefined || silent ? this.#show(silent ? '' : this.#detokenizer.push(token)) : this.#mark(unit);
    if (reasoned && this.#reader?.reasons) this.#reasoningTokens++;
    if (stopped !== null) this.#end('stop', stopped);
    else if (finish !== FINISH.none) {
      this.#add(this.#matcher === null ? '' : this.#matcher.flush());
      this.#add(this.#detokenizer.flush());
      this.#end(finish === FINISH.length ? 'length' : 'stop', finish === FINISH.stopToken ? token : null);
      this.#text += shownEnd;
    }
    return stopped !== null && finish === FINISH.none;
  }

  /** A marker is no text: a stop string that might have gone on is broken off. */
  #mark(unit: string): null {
    if (this.#matcher !== null) this.#add(this.#matcher.flush());
    this.#reader?.push(unit);
    return null;
  }

  #add(text: string): void {
    if (text === '') return;
    this.#decoded = true;
    if (this.#reader === null) this.#text += text;
    else this.#reader.push(text);
  }

  /** Adds text to what is shown. @returns the stop string that it completed. */
  #show(text: string): string | null {
    if (text === '') return null;
    if (this.#matcher === null) {
      this.#add(text);
      return null;
    }
    // Text of the first min_tokens tokens completes no stop string, as in vLLM.
    this.#add(this.#matcher.push(text, this.generated.length > this.#context.params.sampling.min_tokens));
    return this.#matcher.matched;
  }

  #end(reason: FinishReason, stopReason: string | number | null): void {
    this.finished = true;
    this.#reader?.end();
    this.#finish = reason;
    this.#stopReason = stopReason;
  }

  /** What is new for the front, or null when there is nothing to show and the sequence goes on. Call once a step. */
  takeDelta(id: RequestId): Delta | null {
    this.listed = false;
    const finish = this.#finish;
    if (!this.#decoded && finish === null) return null;
    const { params } = this.#context;
    const delta: { -readonly [K in keyof Delta]: Delta[K] } = { id, index: this.index, text: this.#text, tokens: this.#tokens };
    if (this.#reader !== null) this.#takeParts(delta, this.#reader);
    if (this.#accepted + this.#rejected > 0) delta.drafts = { accepted: this.#accepted, rejected: this.#rejected };
    this.#accepted = 0;
    this.#rejected = 0;
    if (params.topLogprobs >= 0) delta.logprobs = this.#logprobs.take();
    if (finish !== null) {
      delta.finish = finish;
      if (this.#stopReason !== null) delta.stopReason = this.#stopReason;
      if (ranksSequences(params) || params.topLogprobs >= 0) delta.cumulative = this.cumulative;
    }
    this.#text = '';
    this.#decoded = false;
    this.#tokens = [];
    return delta;
  }

  #takeParts(delta: { -readonly [K in keyof Delta]: Delta[K] }, reader: AnswerReader): void {
    const { content, reasoning, calls } = reader.take();
    delta.text = content + this.#text;
    if (reasoning !== '') delta.reasoning = reasoning;
    if (calls.length > 0) delta.calls = calls;
    if (reader.reasons !== null) delta.reasoningTokens = this.#reasoningTokens;
    this.#reasoningTokens = 0;
  }
}

/** More sequences are made than the caller gets; the scheduler then sums up logprobs by itself. */
export function ranksSequences(params: GenerationParams): boolean {
  return params.bestOf > params.n;
}

export class RequestState {
  readonly id: RequestId;
  readonly params: GenerationParams;
  readonly arrivalMs: number;
  readonly turn: number;
  readonly sequences: readonly SequenceState[];
  /** Set when the request is admitted; null while its prompt is being encoded. */
  admitted: {
    readonly promptIds: Int32Array;
    readonly maxTokens: number;
    /** Held: Grammars. */
    readonly grammar: number;
    /** Tokens that end the answer besides those of the model and of `params`. */
    readonly endIds: readonly number[];
  } | null = null;
  /** The engine group that was told of it last, which may be over; null before. */
  group: Group | null = null;
  /** Groups that were told of it. */
  admissions = 0;
  /** The front was told about the first step. */
  started = false;
  /** Prompt logprobs of positions below this one were sent. */
  promptPosition = 0;

  constructor({ id, params, arrivalMs, turn }: Submit, shared: Omit<SequenceContext, 'params'>) {
    this.id = id;
    this.params = params;
    this.arrivalMs = arrivalMs;
    this.turn = turn;
    const context: SequenceContext = { params, ...shared };
    this.sequences = Array.from({ length: params.bestOf }, (_, index) => new SequenceState(index, context));
  }

  /** To be called before the first token. */
  readWith(reading: AnswerReading): void {
    for (const sequence of this.sequences) sequence.readWith(reading);
  }

  /** The front was told something of its answer. */
  get begun(): boolean {
    return this.started || this.promptPosition > 0;
  }

  get over(): boolean {
    return this.sequences.every((s) => s.finished);
  }
}
