/**
 * A route of HTTP that ends in a call of a method: what its body becomes, what it shows of the result, and the dialect that it speaks. A
 * method's own face (`http` of its value) is one; dialects have more of them (rpc/dialects). Faces only translate: what they do is done
 * by the methods that they call.
 */
import type { z } from 'zod';
import type { Dialect, StreamFormat } from './dialects/dialect.js';
import { openai } from './dialects/openai/errors.js';
import { type GroupName, groupOf } from './documents/groups.js';
import { type Example, type HttpInput, type HttpVerb, type Method, needOf } from './method.js';
import type { Need } from './scope.js';

/** One call that a face makes. */
export interface Ask {
  /** Its name. */
  readonly method: string;
  readonly params: unknown;
  /** The result as the face shows it; as it is when absent. */
  readonly answer?: (result: unknown) => unknown;
  /** What its answer is streamed as, when the params ask for a stream; it cannot be when absent. */
  readonly stream?: StreamFormat;
}

export interface Face {
  /** Unique: the method's name for its own face. */
  readonly id: string;
  readonly verb: HttpVerb;
  /** The last part may be a name in braces: then it stands for all that a request has there, slashes too. */
  readonly path: string;
  /** Reads a body, or the query of a GET; else what a client sends along is not read. */
  readonly reads: boolean;
  /** Who may ask; the methods that it calls look at that again. */
  readonly access: Need;
  readonly dialect: Dialect;
  /** What the params of the methods are called in its bodies, by the beginning of their path: errors name them so. */
  readonly names?: Readonly<Record<string, string>>;
  /** @throws InferdError for a body that cannot be asked */
  ask(input: HttpInput): Ask;
  readonly about: FaceAbout;
}

/** What the documents say of a face, and what they cannot see from its methods. */
export interface FaceAbout {
  /** Every method that it may call, the usual one first. */
  readonly methods: readonly string[];
  readonly group: GroupName;
  readonly summary: string;
  readonly description?: string;
  /** The body, or the query of a GET. */
  readonly params: z.ZodObject;
  readonly result: z.ZodType;
  /** An event of its stream, and how the stream is written. */
  readonly event?: z.ZodType;
  readonly streamed?: StreamFormat['type'];
  readonly examples: readonly Example[];
}

/** A method's own face, or null where it has none. */
export function ownFace(method: Method): Face | null {
  const { name, http } = method;
  if (http === undefined) return null;
  const { verb, path, params, answer, stream, names, shape = {} } = http;
  return {
    id: name,
    verb,
    path,
    reads: params !== undefined,
    access: needOf(method),
    dialect: openai,
    ...(names === undefined ? {} : { names }),
    ask: (input) => ({
      method: name,
      params: params?.(input) ?? {},
      ...(answer === undefined ? {} : { answer: (result: unknown) => answer(result, input) }),
      ...(stream === undefined ? {} : { stream }),
    }),
    about: {
      methods: [name],
      group: groupOf(name),
      summary: method.summary,
      params: shape.params ?? method.params,
      result: shape.result ?? method.result,
      ...(stream === undefined || shape.event === undefined ? {} : { event: shape.event, streamed: stream.type }),
      examples: shape.examples ?? method.examples ?? [],
    },
  };
}
