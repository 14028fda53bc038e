/**
 * A method of the daemon as one value: name, schemas, handler. Types of both ends, validation, rpc.discover and the HTTP route, where it
 * has one, derive from it. Schemas are built once at start-up, because some ranges come from the configuration and the model.
 */
import type { z } from 'zod';
import type { ErrorKind } from '../actors/messages/errors.js';
import type { CallContext } from './context.js';
import type { StreamFormat } from './dialects/dialect.js';
import { givenFields } from './given-fields.js';
import type { Operation } from './observe.js';
import { checkParams } from './params.js';
import type { Need } from './scope.js';

/** What an HTTP request says besides its path. */
export interface HttpInput {
  readonly query: URLSearchParams;
  /** The JSON object in the body; undefined when there is none, and to GET. */
  readonly body: unknown;
  /** What stands in the place of the path's last part, when that is a name in braces; else "". */
  readonly tail: string;
}

/** A call and its answer, for the documents. A test sends each to a daemon with the demo model and compares. */
export interface Example {
  /** What it shows, in a few words; no other of its method has it. */
  readonly name: string;
  readonly params: Readonly<Record<string, unknown>>;
  /** What the demo model answers. Ids, times and versions differ. */
  readonly result: unknown;
  /** The `choices` of each event, where the params ask for a stream. */
  readonly deltas?: readonly (readonly unknown[])[];
  /** The events themselves, where a dialect has others than OpenAI's chunks. */
  readonly events?: readonly object[];
}

/** What goes over HTTP, where it differs from the method's own. Only described by it: the method checks. */
export interface FaceShape {
  /** The body, or the query of a GET. */
  readonly params?: z.ZodObject;
  readonly result?: z.ZodType;
  /** An event of its stream. */
  readonly event?: z.ZodType;
  /** In these shapes. */
  readonly examples?: readonly Example[];
}

export type HttpVerb = 'GET' | 'POST' | 'DELETE';

/** How a method is asked by HTTP in a face of its own (face.ts). */
export interface HttpFace {
  readonly verb: HttpVerb;
  /** The last part may be a name in braces: then it stands for all that a request has there, slashes too. */
  readonly path: string;
  /** The params of the call; the method checks them. Absent: it takes none, and what a client sends along is not read. */
  readonly params?: (input: HttpInput) => unknown;
  /** The result as this face shows it, where it is not the method's own. */
  readonly answer?: (result: unknown, input: HttpInput) => unknown;
  /** What its answer is streamed as, when the call asks for that; it cannot be when absent. */
  readonly stream?: StreamFormat;
  /** What params are called in its bodies, where it is another name; as in Face. */
  readonly names?: Readonly<Record<string, string>>;
  readonly shape?: FaceShape;
}

/** The usual `params` of a face: the body as it is, or the values of the query as texts. */
export const fromBody = ({ body }: HttpInput): unknown => body;
export const fromQuery = ({ query }: HttpInput): unknown => Object.fromEntries(query);

interface MethodFacts {
  readonly name: string;
  /** One sentence for people. */
  readonly summary: string;
  /** Schema of $/progress params when the call streams. */
  readonly progress?: z.ZodType;
  /** Served by HTTP too. */
  readonly http?: HttpFace;
  readonly examples?: readonly Example[];
  /** Errors that only some methods answer, for the documents. */
  readonly fails?: readonly ErrorKind[];
  /** Top-level params that hold token ids and may be longer than other lists. */
  readonly longLists?: readonly string[];
  /** Does something besides answering, so it also runs as a notification; others are then skipped. */
  readonly acts?: true;
  /** Each call of it is told to the observer, under this name. */
  readonly operation?: Operation;
  /** New work for the engine: refused while the daemon drains. */
  readonly work?: true;
  /** Who may call it. Absent: whoever may generate ("infer"). */
  readonly scope?: Need;
  /** The handler watches `cancellation` itself and ends soon after it fires; others are left behind at once. */
  readonly ownsCancel?: true;
}

/** `P`: params as a client may send them; `R`: result as a client receives it. */
export interface Method<P = unknown, R = unknown> extends MethodFacts {
  readonly params: z.ZodObject;
  readonly result: z.ZodType;
  /** Checks the params once, then runs the handler. @throws InferdError, also synchronously. */
  readonly invoke: (params: unknown, ctx: CallContext) => unknown;
  /** Never set: carries the types to the client. */
  readonly types?: { readonly params: P; readonly result: R };
}

export function defineMethod<S extends z.ZodObject, T extends z.ZodType>(
  def: MethodFacts & {
    readonly params: S;
    readonly result: T;
    readonly handler: (params: z.output<S>, ctx: CallContext) => z.output<T> | Promise<z.output<T>>;
  },
): Method<z.input<S>, z.output<T>> {
  const { handler, ...facts } = def;
  const longLists = new Set(facts.longLists ?? []);
  const quick = givenFields(def.params);
  return { ...facts, invoke: (params, ctx) => handler(checkParams(def.params, params, longLists, quick), ctx) };
}

/** The scope that a caller of the method needs. */
export const needOf = ({ scope = 'infer' }: Pick<Method, 'scope'>): Need => scope;

/** Types of a method value. */
export type ParamsOf<M> = M extends Method<infer P, unknown> ? P : never;
export type ResultOf<M> = M extends Method<unknown, infer R> ? R : never;
