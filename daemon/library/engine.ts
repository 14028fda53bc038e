/**
 * An engine in the caller's process: prompts in, answers in OpenAI's shapes out. What a prompt and its parameters may be, and what answers
 * look like, is the protocol's (rpc/); this only turns one call into many and keeps so many of them in flight. Main thread.
 */
import { setMaxListeners } from 'node:events';
import { type InferdClient, RpcError } from '../../rpc/client/client.js';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  Completion,
  CompletionChunk,
  MethodResult,
  ProgressEvent,
} from '../../rpc/client/types.js';
import { OpenedStream } from './opened-stream.js';
import {
  askFor,
  type ChatParams,
  type ChatPrompt,
  isList,
  type Params,
  type Prompt,
  paramsFor,
  type TextParams,
  type TextPrompt,
} from './prompts.js';
import { Window } from './window.js';

export interface GenerateOptions<A = unknown> {
  /** Cancels what is not answered yet; the call rejects with its reason. */
  readonly signal?: AbortSignal;
  /** Hears of each answer as it comes, with the index of its prompt; not in order. */
  readonly onAnswer?: (answer: A, index: number) => void;
}

export interface StreamOptions {
  /** Cancels the answer; the stream throws its reason. */
  readonly signal?: AbortSignal;
  /** Hears of queue position and prefill. */
  readonly onProgress?: (event: ProgressEvent) => void;
}

interface Generate {
  /** Continues one text. */
  (prompt: TextPrompt, params?: TextParams, options?: GenerateOptions<Completion>): Promise<Completion>;
  /** Answers one conversation. */
  (prompt: ChatPrompt, params?: ChatParams, options?: GenerateOptions<ChatCompletion>): Promise<ChatCompletion>;
  /** The same of each prompt; answers in the order of the prompts. Parameters are one object for all, or one for each. */
  (
    prompts: readonly TextPrompt[],
    params?: TextParams | readonly TextParams[],
    options?: GenerateOptions<Completion>,
  ): Promise<Completion[]>;
  (
    prompts: readonly ChatPrompt[],
    params?: ChatParams | readonly ChatParams[],
    options?: GenerateOptions<ChatCompletion>,
  ): Promise<ChatCompletion[]>;
}

interface Stream {
  /** The answer in chunks as they are made. Leaving the loop early cancels it. */
  (prompt: TextPrompt, params?: TextParams, options?: StreamOptions): AsyncIterableIterator<CompletionChunk>;
  (prompt: ChatPrompt, params?: ChatParams, options?: StreamOptions): AsyncIterableIterator<ChatCompletionChunk>;
}

/**
 * An engine with its model. Calls reject with RpcError (`code` is that of the protocol, the message one sentence), with
 * ConnectionClosedError once the engine is closed, or with the reason of their signal.
 */
export interface Engine extends AsyncDisposable {
  /** Everything else the protocol has: tokenize, stats.get, ... as of a daemon. */
  readonly client: InferdClient;
  /** What is known of the model: name, context length, vocabulary, ... */
  readonly model: MethodResult<'initialize'>['model'];
  /**
   * All prompts at once; the engine batches them. Where one of several fails, the others are cancelled and the error names it:
   * "prompts[3]: ...".
   */
  readonly generate: Generate;
  readonly stream: Stream;
  /** Records a timeline for Perfetto; stop answers with the files. */
  readonly profile: { start(): Promise<MethodResult<'profile.start'>>; stop(): Promise<MethodResult<'profile.stop'>> };
  /** Ends the engine and frees its memory; calls that are not answered are cancelled. May be called again. */
  close(): Promise<void>;
}

export interface EngineParts {
  readonly client: InferdClient;
  /** Prompts in flight, at most. */
  readonly window: number;
  /** Stops everything behind the client. */
  end(): Promise<void>;
}

type Answer = Completion | ChatCompletion;

export class LocalEngine implements Engine {
  readonly client: InferdClient;
  readonly generate: Generate;
  readonly stream: Stream;
  readonly profile: Engine['profile'];
  readonly #parts: EngineParts;
  readonly #window: Window;
  #closing: Promise<void> | null = null;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    this.#window = new Window(parts.window);
    const { client } = parts;
    this.client = client;
    // proof of both casts: askFor makes a chat of a conversation and a text completion of all else, as the overloads say
    this.generate = ((
      prompts: Prompt | readonly Prompt[],
      params: Params | readonly Params[] = {},
      options: GenerateOptions<Answer> = {},
    ) => (isList(prompts) ? this.#several(prompts, params, options) : this.#single(prompts, paramsFor(params, 0, 1), options))) as Generate;
    this.stream = ((prompt: Prompt, params: Params = {}, options: StreamOptions = {}) => this.#open(prompt, params, options)) as Stream;
    this.profile = { start: () => client.call('profile.start', {}), stop: () => client.call('profile.stop', {}) };
  }

  get model(): Engine['model'] {
    return this.client.server.model;
  }

  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #end(): Promise<void> {
    await this.client.close();
    await this.#parts.end();
  }

  #ask(prompt: Prompt, params: Params, signal: AbortSignal | undefined): Promise<Answer> {
    const ask = askFor(prompt, params);
    const options = signal === undefined ? {} : { signal };
    return this.#window.run<Answer>(
      () =>
        ask.kind === 'chat'
          ? this.client.chat.completions.create({ ...ask.body, stream: false }, options)
          : this.client.completions.create({ ...ask.body, stream: false }, options),
      signal,
    );
  }

  async #single(prompt: Prompt, params: Params, { signal, onAnswer }: GenerateOptions<Answer>): Promise<Answer> {
    const answer = await this.#ask(prompt, params, signal);
    onAnswer?.(answer, 0);
    return answer;
  }

  async #several(
    prompts: readonly Prompt[],
    params: Params | readonly Params[],
    { signal, onAnswer }: GenerateOptions<Answer>,
  ): Promise<Answer[]> {
    signal?.throwIfAborted();
    const answers: Answer[] = [];
    const own = new AbortController();
    setMaxListeners(0, own.signal); // each call in flight listens to it
    const onAbort = (): void => own.abort(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    let next = 0;
    const worker = async (): Promise<void> => {
      for (let i = next++; i < prompts.length; i = next++) {
        const prompt = prompts[i] as Prompt; // proof: i < prompts.length
        const answer = await this.#ask(prompt, paramsFor(params, i, prompts.length), own.signal).catch((error: unknown) => {
          throw named(error, i);
        });
        answers[i] = answer;
        onAnswer?.(answer, i);
      }
    };
    try {
      await Promise.all(Array.from({ length: Math.min(this.#parts.window, prompts.length) }, worker));
      return answers;
    } catch (error) {
      next = prompts.length;
      own.abort(error);
      throw error;
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }

  #open(prompt: Prompt, params: Params, options: StreamOptions): AsyncIterableIterator<unknown> {
    const ask = askFor(prompt, params);
    return ask.kind === 'chat'
      ? new OpenedStream(this.client.chat.completions.create({ ...ask.body, stream: true }, options))
      : new OpenedStream(this.client.completions.create({ ...ask.body, stream: true }, options));
  }
}

/** Which of several prompts it was. */
function named(error: unknown, index: number): unknown {
  return error instanceof RpcError ? new RpcError(error.code, `prompts[${index}]: ${error.message}`, error.data) : error;
}
