/**
 * The JSON-RPC server behind both doors. Each member of a message goes alone through the package json-rpc-2.0, which calls the method
 * and builds the response; everything it does not do to the letter of the specification is done around it: members are checked before
 * (decode.ts), batches are assembled here, errors come from the one table.
 *
 * One per daemon, main thread. Invariant: a member with an id gets exactly one response, a member without never gets one.
 */
import { type JSONRPCRequest, type JSONRPCResponse, JSONRPCServer } from 'json-rpc-2.0';
import type { ClientKey } from '../actors/client-types.js';
import { errorTable, type Failure, InferdError } from '../actors/messages/errors.js';
import type { RequestId } from '../actors/messages/ids.js';
import { Cancellation } from '../actors/runtime/cancellation.js';
import { authModes } from '../config/auth-modes.js';
import { similar } from '../config/nearest.js';
import { CallTable } from './calls.js';
import type { CallContext, LiveRequest, RpcDeps } from './context.js';
import type { TextLimit, TextLimits } from './decode/cut-texts.js';
import { type Decoded, decodeMessage, decodeValue } from './decode/decode.js';
import { LargeMessages, largeBytes } from './decode/large-messages.js';
import { joined, lengthOf, type Pieces, piecesOf } from './decode/pieces.js';
import type { StreamFormat } from './dialects/dialect.js';
import { errorReply, renamed } from './dialects/failure.js';
import { dialectFaces } from './dialects/index.js';
import { openai } from './dialects/openai/errors.js';
import { faceOperation } from './documents/faces.js';
import { openrpcDocument } from './documents/openrpc.js';
import type { Operation } from './documents/operation.js';
import { type Face, ownFace } from './face.js';
import { type Holding, HoldingLimit } from './holding.js';
import { EndedAnswers } from './insight/ended-answers.js';
import { encodeReply, errorResponse, type Id, type Member, type Message, maxBatchMembers, type Response } from './message.js';
import { type HttpInput, type Method, needOf } from './method.js';
import { createMethods } from './methods/index.js';
import type { Models } from './models.js';
import { type TraceHeaders, watched } from './observe.js';
import { allScopes, checkScope, noScopes, type Scopes } from './scope.js';
import type { Session } from './session.js';
import { type EndingSinkMaker, type SinkMaker, wholeOnly } from './sink.js';
import { isLarge, type Slices, slicesOf } from './slices.js';

export type { RpcDeps } from './context.js';

/** Who sent a message. */
export interface Caller {
  readonly calls: CallTable;
  readonly session: Session | null;
  readonly sinks: SinkMaker;
  /** Stands for the connection; compared only. */
  readonly client: ClientKey;
  readonly scopes: Scopes;
  readonly trace?: TraceHeaders | null;
  /** Of this message; released by whoever sends the reply. */
  readonly holding: Holding;
  /** When this message had been read whole, before it was decoded; performance.now(). */
  readonly arrivalMs: number;
}

/** What a message brings itself, whoever sent it. */
type OfMessage = Pick<Caller, 'holding' | 'arrivalMs'>;

/** The message that a call came in. */
type Place = Pick<CallContext, 'inBatch' | 'crowded' | 'refused'>;

export interface PostOptions {
  /** Default: all when auth.mode is "none", else none. */
  readonly scopes?: Scopes;
  /** Fires when the HTTP client goes away. */
  readonly signal?: AbortSignal;
  /** Stands for the HTTP connection; without it, each body is a client of its own. */
  readonly client?: ClientKey;
  /** When the body had been read whole, performance.now(); not said: now. */
  readonly arrivalMs?: number;
  readonly trace?: TraceHeaders | null;
}

/** What a request to a face brings. */
export interface CallOptions extends PostOptions {
  readonly query?: URLSearchParams;
  /** See HttpInput. */
  readonly tail?: string;
  /** Read only by faces that take params. */
  /** Not the caller's any more. */
  readonly body?: Uint8Array | Pieces;
  /** Makes the door through which an answer leaves while it is made, where the face can stream. */
  readonly sinks?: (format: StreamFormat) => EndingSinkMaker;
}

export interface PostReply {
  readonly status: number;
  /** Null: the answer has none, or went into its stream to the end. */
  readonly body: string | null;
  readonly streamed?: true;
  readonly headers?: Readonly<Record<string, string>>;
  /** A client may try again after so many seconds. */
  readonly retryAfterS?: number;
  /** Instead of a body, when the answer is large; the caller closes them. */
  readonly slices?: Slices;
}

const never = new Cancellation();
/** Characters of an unknown method's name that its error repeats. */
const maxShownName = 64;

/** Messages up to this size are small. */
const SMALL_BYTES = 64 * 1024;
/** What messages that are not answered yet may hold together, in messages of the largest size: prompts are kept until then. */
const LARGE_MESSAGES = 64;
/** What small ones may hold besides, bytes, so that no large ones keep them out: those of twice as many requests as may wait by default. */
const SMALL_TOGETHER = 2048 * SMALL_BYTES;

/** What answers may hold together until they are written, in answers of the most entries. */
const LARGE_ANSWERS = 4;
/** An alternative in a log-probability record. */
const ENTRY_BYTES = 8;

export class RpcServer {
  readonly deps: RpcDeps;
  /** What all answers hold that are not written yet. */
  readonly holdings: HoldingLimit;
  readonly large: LargeMessages;
  readonly #methods: ReadonlyMap<string, Method>;
  /** By id. */
  readonly #faces: ReadonlyMap<string, Face>;
  readonly #rpc: JSONRPCServer<CallContext>;
  readonly #live = new Map<RequestId, LiveRequest>();
  readonly #ended: EndedAnswers;
  #document: object | null = null;
  #draining = false;
  /** Bytes of the messages that are not answered yet. */
  #pendingBytes = 0;

  constructor(deps: RpcDeps, extra: readonly Method[]) {
    this.deps = deps;
    this.#ended = new EndedAnswers(deps.config.scheduler.kept_timelines);
    this.holdings = new HoldingLimit(LARGE_ANSWERS * ENTRY_BYTES * deps.config.validation.max_reported_logprobs);
    this.large = new LargeMessages(deps.config.server.max_message_bytes, () => textLimits(deps.models));
    const methods = [...Object.values(createMethods(deps, () => this.openrpc())), ...extra];
    this.#methods = new Map(methods.map((m) => [m.name, m]));
    const own = methods.map(ownFace).filter((face) => face !== null);
    this.#faces = new Map([...own, ...dialectFaces(deps)].map((face) => [face.id, face]));
    this.#rpc = new JSONRPCServer<CallContext>({ errorListener: (where, error) => this.#logUnexpected(where, error) });
    this.#rpc.mapErrorToJSONRPCErrorResponse = (id, error: unknown) =>
      errorResponse(id, error instanceof InferdError ? error.failure : { kind: 'internal' }) as JSONRPCResponse & { error: never };
    this.#rpc.handleMethodNotFound = (request) =>
      Promise.resolve(
        request.id === undefined ? null : (errorResponse(request.id, this.#unknownMethod(request.method)) as JSONRPCResponse), // same shape
      );
    for (const method of methods) this.#rpc.addMethod(method.name, (params: unknown, ctx) => this.#run(method, params, ctx));
  }

  /** Answers one message of `bytes` bytes; null when nothing may be answered. Never rejects. */
  async answer(message: Message, caller: Caller, bytes: number): Promise<Response | readonly Response[] | null> {
    if (message.kind === 'failed') return this.#told(errorResponse(null, message.failure));
    return this.#counted(bytes, async (crowded) => {
      if (message.kind === 'single') return this.#told(await this.#answerMember(message.member, caller, { inBatch: false, crowded }));
      const replies = await Promise.all(message.members.map((member) => this.#answerMember(member, caller, { inBatch: true, crowded })));
      const responses = replies.filter((reply) => reply !== null);
      for (const response of responses) this.#told(response);
      return responses.length === 0 ? null : responses;
    });
  }

  #told<R extends Response | null>(response: R): R {
    if (response !== null && 'error' in response && response.error !== undefined) this.deps.onError?.(response.error.code);
    return response;
  }

  /** Answers a message of `bytes` bytes while its bytes count. `crowded`: the daemon holds too many to begin with this one. */
  async #counted<T>(bytes: number, answer: (crowded: boolean) => Promise<T>): Promise<T> {
    const limit = LARGE_MESSAGES * this.deps.config.server.max_message_bytes + (bytes > SMALL_BYTES ? 0 : SMALL_TOGETHER);
    const crowded = this.#pendingBytes + bytes > limit;
    this.#pendingBytes += bytes;
    try {
      return await answer(crowded);
    } finally {
      this.#pendingBytes -= bytes;
    }
  }

  /**
   * One HTTP body, which is not the caller's any more. JSON-RPC errors are answers: their status is 200. 204: nothing but notifications came.
   * Never rejects.
   */
  async handlePost(body: Uint8Array | Pieces, options: PostOptions = {}): Promise<PostReply> {
    const { arrivalMs = performance.now() } = options;
    const pieces = piecesOf(body);
    const length = lengthOf(pieces);
    const maxBytes = this.deps.config.server.max_message_bytes;
    const calls = new CallTable(maxBatchMembers);
    const large = length > largeBytes;
    const message = large ? await this.large.message(pieces, 'json') : decodeMessage(joined(pieces), 'json', maxBytes);
    const cancel = (): void => calls.cancelAll();
    const holding = this.holdings.open();
    options.signal?.addEventListener('abort', cancel);
    try {
      const answering = this.answer(message, this.#httpCaller(calls, { holding, arrivalMs }, options), length);
      if (options.signal?.aborted) calls.cancelAll();
      const reply = await answering;
      if (reply !== null && isLarge(reply)) return { status: 200, body: null, slices: slicesOf(reply, 'json', () => holding.release()) };
      holding.release();
      return reply === null ? { status: 204, body: null } : { status: 200, body: encodeReply(reply, JSON.stringify) };
    } finally {
      options.signal?.removeEventListener('abort', cancel);
    }
  }

  /** A request to a face: the result of the method that it calls, or an error, in the shapes of its dialect. Never rejects. */
  async handleCall(id: string, options: CallOptions = {}): Promise<PostReply> {
    const { arrivalMs = performance.now() } = options;
    const face = this.#faces.get(id);
    const maxBytes = this.deps.config.server.max_message_bytes;
    const calls = new CallTable(1);
    const cancellation = new Cancellation();
    const cancel = (): void => cancellation.cancel();
    options.signal?.addEventListener('abort', cancel);
    if (options.signal?.aborted) cancel();
    const holding = this.holdings.open();
    const pieces = piecesOf(options.body ?? []);
    let sinks: EndingSinkMaker | null = null;
    try {
      if (face === undefined) throw new InferdError('method_not_found');
      const caller = this.#httpCaller(calls, { holding, arrivalMs }, options);
      checkScope(caller.scopes, face.access);
      const length = lengthOf(pieces); // asked before they go
      if (length > maxBytes) throw new InferdError('invalid_request', `The body is larger than ${maxBytes} bytes`);
      const read = face.reads && face.verb !== 'GET' && length > 0;
      const large = read && length > largeBytes ? await this.large.value(pieces, id) : null;
      const input = inputOf(options, read ? (large ?? decodeValue(joined(pieces))) : null);
      const ask = face.ask(input);
      const method = this.#methods.get(ask.method);
      if (method === undefined) throw new InferdError('method_not_found');
      if (options.sinks !== undefined && ask.stream !== undefined) sinks = options.sinks(ask.stream);
      const streaming = { ...caller, sinks: sinks ?? wholeOnly };
      const refused = large?.refused === undefined ? {} : { refused: large.refused };
      const result = await this.#counted(length, async (crowded) =>
        this.#run(method, ask.params, this.#context(undefined, cancellation, streaming, { inBatch: false, crowded, ...refused })),
      );
      if (sinks?.opened) {
        sinks.end(result);
        holding.release();
        return streamed;
      }
      const answer = ask.answer?.(result) ?? result;
      if (isLarge(answer)) return { status: 200, body: null, slices: slicesOf(answer, 'json', () => holding.release()) };
      holding.release();
      return { status: 200, body: JSON.stringify(answer) };
    } catch (error) {
      holding.release();
      if (!(error instanceof InferdError)) this.#logUnexpected(id, error);
      const failure = renamed(error instanceof InferdError ? error.failure : { kind: 'internal' }, face?.names);
      this.deps.onError?.(errorTable[failure.kind].code);
      if (!sinks?.begun) return errorReply(failure, face?.dialect ?? openai);
      sinks.fail(failure);
      return streamed;
    } finally {
      this.large.drop(pieces); // where nobody came to read them
      options.signal?.removeEventListener('abort', cancel);
    }
  }

  /** How methods are asked by HTTP. */
  faces(): readonly Face[] {
    return [...this.#faces.values()];
  }

  /** The same as the OpenAPI document describes them. */
  operations(): readonly Operation[] {
    return this.faces().map((face) => faceOperation(face, this.#methods));
  }

  /** From now on new work is refused, on every connection and over HTTP; what runs goes on. */
  shutdown(): void {
    this.#draining = true;
  }

  /** The OpenRPC document of all methods; built on first use. */
  openrpc(): object {
    this.#document ??= openrpcDocument([...this.#methods.values()], this.deps.version);
    return this.#document;
  }

  #httpCaller(calls: CallTable, message: OfMessage, { client = calls, scopes, trace = null }: PostOptions): Caller {
    const may = scopes ?? (authModes(this.deps.config.auth.mode).length === 0 ? allScopes : noScopes);
    return { calls, session: null, sinks: wholeOnly, client, scopes: may, trace, ...message };
  }

  async #answerMember(member: Member, caller: Caller, place: Place): Promise<Response | null> {
    if (member.kind === 'invalid') return errorResponse(member.id, { kind: 'invalid_request', message: member.reason });
    const method = this.#methods.get(member.method);
    if (member.id === undefined) {
      if (method?.acts) await this.#receive(member, this.#context(member.id, never, caller, place));
      return null;
    }
    const call = caller.calls.open(member.id);
    if ('kind' in call) return errorResponse(member.id, call);
    try {
      const { refused } = member;
      const own = refused === undefined ? place : { ...place, refused };
      return await this.#receive(member, this.#context(member.id, call.cancellation, caller, own));
    } finally {
      call.close();
    }
  }

  async #receive(member: Member & { kind: 'call' }, ctx: CallContext): Promise<Response | null> {
    const { id, method, params } = member;
    const request: JSONRPCRequest = { jsonrpc: '2.0', method, params, ...(id === undefined ? {} : { id }) };
    return (await this.#rpc.receive(request, ctx)) as Response | null; // proof: built by the package or by the two hooks above
  }

  #context(id: Id | undefined, cancellation: Cancellation, caller: Caller, place: Place): CallContext {
    const { calls, session, sinks, client, scopes, trace = null, holding, arrivalMs } = caller;
    const draining = this.#draining || session?.draining === true;
    const { inBatch, crowded, refused } = place;
    const context: { -readonly [K in keyof CallContext]: CallContext[K] } = {
      inBatch,
      crowded,
      session,
      sinks,
      client,
      calls,
      scopes,
      trace,
      draining,
      cancellation,
      holding,
      arrivalMs,
      live: this.#live,
      ended: this.#ended,
    };
    // Not by spreading, which takes several times as long.
    if (id !== undefined) context.id = id;
    if (refused !== undefined) context.refused = refused;
    return context;
  }

  #unknownMethod(name: string): Failure {
    const meant = similar(name, this.#methods.keys());
    const advice = meant === null ? 'rpc.discover lists all' : `did you mean ${JSON.stringify(meant)}?`;
    return { kind: 'method_not_found', message: `There is no method ${JSON.stringify(name.slice(0, maxShownName))}; ${advice}` };
  }

  #run(method: Method, params: unknown, ctx: CallContext): unknown {
    const { operation } = method;
    const { observe, models } = this.deps;
    if (operation === undefined || observe === undefined) return this.#invoke(method, params, ctx);
    const given = (params ?? {}) as Readonly<Record<string, unknown>>; // proof: a message's params are an object or a list
    const asked = given['model'];
    const model = typeof asked === 'string' ? asked : models.find().model.name;
    const watch = observe({ operation, model, params: given, trace: ctx.trace });
    return watch === null ? this.#invoke(method, params, ctx) : watched(() => this.#invoke(method, params, ctx), watch);
  }

  #invoke(method: Method, params: unknown, ctx: CallContext): unknown {
    checkScope(ctx.scopes, needOf(method));
    if (method.work && ctx.draining) throw new InferdError('shutting_down');
    if (method.work && ctx.crowded) throw new InferdError('overloaded', 'Too many messages are being answered; try again later');
    const answer = method.invoke(params, ctx);
    return method.ownsCancel || !(answer instanceof Promise) ? answer : leaveOnCancel(answer, ctx.cancellation);
  }

  /** The table's failures are answers; anything else is a bug. The message of an exception may quote the params, so it is left out. */
  #logUnexpected(where: string, error: unknown): void {
    if (error instanceof InferdError) return;
    const frames = error instanceof Error ? error.stack?.split('\n').filter((line) => line.startsWith('    at ')) : undefined;
    this.deps.log.error({ where, name: error instanceof Error ? error.name : typeof error, stack: frames?.join('\n') }, 'a method failed');
  }
}

const streamed: PostReply = { status: 200, body: null, streamed: true };

/** Of models that are loaded and whose tokenizer has said what it takes, and of their adapters. */
function textLimits(models: Models): TextLimits {
  const limits = new Map<string, TextLimit>();
  const first = models.find().model.name;
  for (const { model, engine } of models.loaded()) {
    const bounds = engine.textBounds();
    const served = engine.model();
    if (bounds === null || served === null) continue;
    const limit = { chars: bounds.charsOfAnId * served.maxModelLen, stretch: bounds.stretch };
    limits.set(model.name, limit);
    if (model.name === first) limits.set('', limit);
    for (const { name } of engine.adapters?.list() ?? []) limits.set(name, limit);
  }
  return limits;
}

/** @throws InferdError when the body, which is read when `decoded` is not null, is no JSON object within the limits */
function inputOf({ query = new URLSearchParams(), tail = '' }: CallOptions, decoded: Decoded | null): HttpInput {
  if (decoded === null) return { query, tail, body: undefined };
  const { value, failure } = decoded;
  if (failure !== undefined) throw new InferdError(failure.kind, failure.message);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InferdError('invalid_request', 'The body must be a JSON object');
  }
  return { query, tail, body: value };
}

/** `extra`: methods besides the daemon's own. */
export function createRpcServer(deps: RpcDeps, extra: readonly Method[] = []): RpcServer {
  return new RpcServer(deps, extra);
}

/** The answer, or a refusal as soon as it is cancelled; the answer is then left to finish by itself. */
function leaveOnCancel(answer: Promise<unknown>, cancellation: Cancellation): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(new InferdError('cancelled'));
    if (cancellation.cancelled) leave();
    cancellation.listen(leave);
    answer.then(resolve, reject).finally(() => cancellation.unlisten(leave));
  });
}
