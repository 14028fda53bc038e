/**
 * A verb at a path, as OpenAPI describes it. The faces of methods (faces.ts) and the routes of the daemon's own (daemon/front) are both
 * told in these words; openapi.ts adds what holds for all of them.
 */
import type { Dialect } from '../dialects/dialect.js';
import type { HttpVerb } from '../method.js';
import type { Need } from '../scope.js';
import type { GroupName } from './groups.js';
import type { JsonSchema } from './json-schema.js';

/** Who is answered at a route. "open": everybody whom the gate lets through, without a token. */
export type Access = Need | 'open';

/** A body of one media type. */
export interface Media {
  readonly schema: JsonSchema;
  /** By name; those of a request and of its answer that have the same name belong together. */
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
  /** In a stream: what each line of JSON holds, or each `data` of server-sent events; OpenAI's chunks end with one that is [DONE]. */
  readonly 'x-event'?: JsonSchema;
}

/** By media type. */
export type Content = Readonly<Record<string, Media>>;

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query';
  readonly required: boolean;
  readonly description?: string;
  readonly schema: JsonSchema;
  readonly examples?: Media['examples'];
}

export interface Answer {
  readonly description: string;
  readonly content?: Content;
}

/** What is said about an operation besides where it is. */
export interface About {
  /** Unique: the method's name, or a word for a route of the daemon's own. */
  readonly id: string;
  readonly group: GroupName;
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  /** Absent: what a client sends along is not looked at. */
  readonly body?: Content;
  /** By status. */
  readonly answers: Readonly<Record<number, Answer>>;
  /** Statuses of errors besides those that every operation may answer. */
  readonly errors?: readonly number[];
  /** Schemas that the above refers to, by name in `#/components/schemas`. */
  readonly schemas?: Readonly<Record<string, JsonSchema>>;
}

export interface Operation extends About {
  readonly verb: HttpVerb;
  /** As the table of routes has it: the last part may be a name in braces. */
  readonly path: string;
  readonly access: Access;
  /** Whose shape its errors have; OpenAI's when absent. */
  readonly dialect?: Dialect;
}

/** The reference to a schema of `About.schemas`. */
export const refTo = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` });
