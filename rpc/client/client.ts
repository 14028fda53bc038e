/**
 * The typed client, without the part that opens a socket: calls, cancelling, streams. Requests and responses go through the package
 * json-rpc-2.0; notifications of the daemon are handed to the streams and listeners here. Works in Node and in browsers.
 */
import { JSONRPCClient, type JSONRPCResponse } from 'json-rpc-2.0';
import { chunkObjects } from './chunk.js';
import { ConnectionClosedError, RpcError } from './errors.js';
import { type PullOptions, type PullParams, pullModel } from './pull.js';
import { ChunkStream, creditWindow } from './stream.js';
import type { OpenTransport, Transport } from './transport.js';
import type {
  CallOptions,
  ChatCompletion,
  ChatCompletionChunk,
  ChatCompletionParams,
  Completion,
  CompletionChunk,
  CompletionParams,
  EmbeddingList,
  EmbeddingParams,
  MethodName,
  MethodParams,
  MethodResult,
  StreamCallOptions,
} from './types.js';

export * from './errors.js';
export type { PullNews, PullOptions, PullParams } from './pull.js';
export type { ChunkStream } from './stream.js';
export type * from './types.js';

/** What the daemon said of itself when we connected. */
export type ServerInfo = MethodResult<'initialize'>;

interface CreateChat {
  (body: ChatCompletionParams & { readonly stream: true }, options?: StreamCallOptions): Promise<ChunkStream<ChatCompletionChunk>>;
  (body: ChatCompletionParams & { readonly stream?: false | null }, options?: CallOptions): Promise<ChatCompletion>;
}
interface CreateCompletion {
  (body: CompletionParams & { readonly stream: true }, options?: StreamCallOptions): Promise<ChunkStream<CompletionChunk>>;
  (body: CompletionParams & { readonly stream?: false | null }, options?: CallOptions): Promise<Completion>;
}

type Params = Readonly<Record<string, unknown>>;
type GeneratingMethod = keyof typeof chunkObjects;

export class InferdClient {
  /** Resolves with the reason when the connection is over, whoever closed it. */
  readonly closed: Promise<string>;
  readonly chat: { readonly completions: { readonly create: CreateChat } };
  readonly completions: { readonly create: CreateCompletion };
  readonly embeddings: { readonly create: (body: EmbeddingParams, options?: CallOptions) => Promise<EmbeddingList> };
  /** Models on the disk of the daemon; needs the scope admin. */
  readonly models: { readonly pull: (params: PullParams, options?: PullOptions) => Promise<MethodResult<'models.pull'>> };
  #server: ServerInfo | null = null;
  #transport: Transport | null = null;
  #closedReason: string | null = null;
  #nextId = 1;
  readonly #rpc: JSONRPCClient;
  readonly #streams = new Map<number, ChunkStream<unknown>>();
  readonly #listeners = new Map<string, Set<(params: Params) => void>>();
  #onClosed: (reason: string) => void = () => {};

  private constructor() {
    this.closed = new Promise((resolve) => {
      this.#onClosed = resolve;
    });
    this.#rpc = new JSONRPCClient((payload: unknown) => this.#send(payload));
    this.chat = { completions: { create: this.#creator('chat.completions.create') as CreateChat } };
    this.completions = { create: this.#creator('completions.create') as CreateCompletion };
    this.models = { pull: (params, options = {}) => pullModel(this, params, options) };
    this.embeddings = { create: (body, options) => this.call('embeddings.create', body, options) };
  }

  /** Opens a connection and introduces itself. @throws ConnectError */
  static async open(open: OpenTransport, name = 'inferd-client'): Promise<InferdClient> {
    const client = new InferdClient();
    client.#transport = await open({
      text: (frame) => client.#receive(frame),
      closed: (reason) => client.#end(reason),
    });
    try {
      const capabilities = { batchNotifications: true, deltaHead: true };
      client.#server = await client.call('initialize', { client: { name }, protocol: 1, capabilities });
    } catch (error) {
      await client.close();
      throw error;
    }
    return client;
  }

  /** Versions, model and limits of the daemon. */
  get server(): ServerInfo {
    if (this.#server === null) throw new ConnectionClosedError('The client is not connected yet');
    return this.#server;
  }

  /** Calls any method. @throws RpcError, ConnectionClosedError, or the signal's reason */
  async call<M extends MethodName>(method: M, params: MethodParams<M>, options: CallOptions = {}): Promise<MethodResult<M>> {
    const { signal } = options;
    signal?.throwIfAborted();
    const id = this.#nextId++;
    const answer = this.#request(id, method, params);
    if (signal === undefined) return (await answer) as MethodResult<M>; // proof: the daemon's schema of the method
    return (await this.#orAbort(answer, id, signal)) as MethodResult<M>;
  }

  /** Hears the daemon's notifications of one method, for example "stats.update". Returns a function that stops it. */
  onNotification(method: string, listener: (params: Params) => void): () => void {
    const set = this.#listeners.get(method) ?? new Set();
    this.#listeners.set(method, set.add(listener));
    return () => void set.delete(listener);
  }

  /** Closes the connection; unanswered calls are rejected and cancelled in the daemon. */
  async close(): Promise<void> {
    this.#transport?.close();
    this.#end('The client was closed');
    await this.closed;
  }

  #creator(method: GeneratingMethod) {
    return async (body: Params & { readonly stream?: boolean | null }, options: StreamCallOptions = {}): Promise<unknown> =>
      body.stream === true
        ? this.#startStream(method, body, options)
        : this.call(method, body as unknown as MethodParams<GeneratingMethod>, options); // proof: CreateChat and CreateCompletion
  }

  #startStream(method: GeneratingMethod, body: Params, options: StreamCallOptions): ChunkStream<unknown> {
    const { signal, onProgress } = options;
    signal?.throwIfAborted();
    const id = this.#nextId++;
    const cancel = (): void => this.#notify('$/cancelRequest', { id });
    const stream = new ChunkStream<unknown>({
      object: chunkObjects[method],
      cancel,
      onProgress,
      grant: (n) => this.#notify('$/credit', { token: id, n }),
    });
    const onAbort = (): void => {
      cancel();
      stream.abort(signal?.reason);
    };
    this.#streams.set(id, stream);
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#request(id, method, { ...body, stream: { token: id, credit: creditWindow } })
      .then(
        (result) => stream.finish(result as ChatCompletion), // proof: the members finish() reads are the same in both answers
        (error: unknown) => stream.fail(error),
      )
      .finally(() => {
        this.#streams.delete(id);
        signal?.removeEventListener('abort', onAbort);
      });
    return stream;
  }

  async #request(id: number, method: string, params: unknown): Promise<unknown> {
    if (this.#closedReason !== null) throw new ConnectionClosedError(this.#closedReason);
    const response: JSONRPCResponse = await this.#rpc.requestAdvanced({ jsonrpc: '2.0', id, method, params });
    if (response.error === undefined) return response.result;
    if (this.#closedReason !== null) throw new ConnectionClosedError(this.#closedReason);
    throw new RpcError(response.error.code, response.error.message, response.error.data);
  }

  #orAbort(answer: Promise<unknown>, id: number, signal: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#notify('$/cancelRequest', { id });
        reject(signal.reason);
      };
      signal.addEventListener('abort', onAbort, { once: true });
      answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
    });
  }

  #notify(method: string, params: Params): void {
    if (this.#closedReason === null) this.#rpc.notify(method, params);
  }

  #send(payload: unknown): void {
    if (this.#transport === null) throw new ConnectionClosedError('The client is not connected');
    this.#transport.send(JSON.stringify(payload));
  }

  #receive(frame: string): void {
    let message: unknown;
    try {
      message = JSON.parse(frame);
    } catch {
      this.#transport?.close();
      this.#end('The daemon sent something that is not JSON');
      return;
    }
    for (const one of Array.isArray(message) ? (message as unknown[]) : [message]) this.#dispatch(one);
  }

  #dispatch(message: unknown): void {
    if (typeof message !== 'object' || message === null) return;
    const { method, params } = message as { method?: unknown; params?: unknown };
    if (typeof method !== 'string') {
      this.#rpc.receive(message as JSONRPCResponse); // ids it does not wait for are ignored
      return;
    }
    const given = (params ?? {}) as Params;
    if (method === '$/progress') {
      // proof: the daemon's progress schema
      this.#streams.get(given['token'] as number)?.accept(given as unknown as Parameters<ChunkStream<unknown>['accept']>[0]);
    }
    for (const listener of this.#listeners.get(method) ?? []) listener(given);
  }

  #end(reason: string): void {
    if (this.#closedReason !== null) return;
    this.#closedReason = reason;
    this.#transport = null;
    this.#rpc.rejectAllPendingRequests(reason);
    this.#onClosed(reason);
  }
}
