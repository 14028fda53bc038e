/**
 * The HTTP face of a method as an operation of the OpenAPI document: all of it comes from the method's value, so that what is served and
 * what is described are one.
 */
import { type ErrorKind, errorTable } from '../../actors/messages/errors.js';
import { chunkOf } from '../client/chunk.js';
import { type Example, type HttpFace, type Method, needOf } from '../method.js';
import { groupOf } from './groups.js';
import { jsonSchema } from './json-schema.js';
import { type Content, type Media, type Operation, type Parameter, refTo } from './operation.js';

/** Null: it has no face. */
export function faceOperation(method: Method): Operation | null {
  const face = method.http;
  if (face === undefined) return null;
  const { shape = {} } = face;
  const name = pascalCase(method.name);
  const examples = shape.examples ?? method.examples ?? [];
  const body = face.verb === 'POST' && face.params !== undefined;
  const params = shape.params ?? method.params;
  const parameters = parametersOf(face, params.shape, examples);
  const stream = face.sinks?.includes('sse') && shape.event !== undefined ? shape.event : null;
  return {
    id: method.name,
    group: groupOf(method.name),
    verb: face.verb,
    path: face.path,
    summary: method.summary,
    access: needOf(method),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body ? { body: { 'application/json': media(`${name}Params`, examples, ({ params: sent }) => sent) } } : {}),
    answers: { 200: { description: 'The answer.', content: answerContent(name, examples, stream !== null) } },
    errors: errorsOf(method, face.verb === 'POST'),
    schemas: {
      ...(body ? { [`${name}Params`]: jsonSchema(params, 'draft-2020-12') } : {}),
      [`${name}Result`]: jsonSchema(shape.result ?? method.result, 'draft-2020-12'),
      ...(stream === null ? {} : { [`${name}Event`]: jsonSchema(stream, 'draft-2020-12') }),
    },
  };
}

function media(schema: string, examples: readonly Example[], value: (example: Example) => unknown): Media {
  const shown = Object.fromEntries(examples.map((example) => [example.name, { value: value(example) }]));
  return { schema: refTo(schema), ...(examples.length === 0 ? {} : { examples: shown }) };
}

function answerContent(name: string, examples: readonly Example[], streams: boolean): Content {
  const whole = examples.filter(({ deltas }) => deltas === undefined);
  const json = { 'application/json': media(`${name}Result`, whole, ({ result }) => result) };
  if (!streams) return json;
  const streamed = examples.filter(({ deltas }) => deltas !== undefined);
  const events = media(`${name}Event`, streamed, eventsText);
  const schema = {
    type: 'string',
    description: 'Server-sent events: a chunk of the answer each, the last is [DONE]. Asked for by "stream": true.',
  };
  return { ...json, 'text/event-stream': { ...events, schema, 'x-event': events.schema } };
}

/** A streamed example as it goes over the wire. */
function eventsText({ result, deltas = [] }: Example): string {
  const { id, object, created, model } = result as { id: string; object: string; created: number; model: string }; // proof: what streams has these
  const head = { id, object: object === 'chat.completion' ? 'chat.completion.chunk' : object, created, model };
  const chunks = deltas.map((choices) => {
    const { usage: _none, ...chunk } = chunkOf(head, choices);
    return JSON.stringify(chunk);
  });
  return [...chunks, '[DONE]'].map((data) => `data: ${data}\n\n`).join('');
}

/** The name in braces of the path, and the query of a GET that reads one. */
function parametersOf(face: HttpFace, shape: Readonly<Record<string, unknown>>, examples: readonly Example[]): Parameter[] {
  const inPath = /\{(\w+)\}$/.exec(face.path)?.[1];
  const names = face.verb === 'GET' && face.params !== undefined && inPath === undefined ? Object.keys(shape) : [];
  return [...(inPath === undefined ? [] : [inPath]), ...names].map((name) => {
    const field = shape[name] as Method['params']; // proof: a shape holds schemas
    const shown = examples.filter(({ params }) => params[name] !== undefined);
    return {
      name,
      in: name === inPath ? 'path' : 'query',
      required: name === inPath || !field.safeParse(undefined).success,
      ...(name === inPath ? { description: 'May hold slashes, as they are or as %2F.' } : {}),
      schema: jsonSchema(field, 'draft-2020-12'),
      ...(shown.length === 0 ? {} : { examples: Object.fromEntries(shown.map((e) => [e.name, { value: e.params[name] }])) }),
    };
  });
}

/** What a body costs, what the state of the daemon allows, and what the method names itself. */
function errorsOf({ params, work, fails = [] }: Method, post: boolean): number[] {
  const kinds: ErrorKind[] = [...fails];
  if ('model' in params.shape) kinds.push('model_not_found');
  if (work) kinds.push('shutting_down', 'model_loading', 'overloaded', 'engine_failure');
  const statuses: number[] = kinds.map((kind) => errorTable[kind].status);
  return [...new Set(post ? [...statuses, 413] : statuses)];
}

/** "chat.completions.create" as "ChatCompletionsCreate". */
function pascalCase(name: string): string {
  return name.replace(/(?:^|[^A-Za-z]+)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
