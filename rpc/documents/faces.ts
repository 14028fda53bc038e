/**
 * A face as an operation of the OpenAPI document: all of it comes from the face and the methods that it may call, so that what is served
 * and what is described are one.
 */
import type { ErrorKind } from '../../actors/messages/errors.js';
import { chunkOf } from '../client/chunk.js';
import type { Face } from '../face.js';
import type { Example, Method } from '../method.js';
import { jsonSchema } from './json-schema.js';
import { type Content, type Media, type Operation, type Parameter, refTo } from './operation.js';

/** `methods`: all, by name. */
export function faceOperation(face: Face, methods: ReadonlyMap<string, Method>): Operation {
  const { id, verb, path, dialect, about } = face;
  const called = about.methods.map((name) => methods.get(name)).filter((method) => method !== undefined);
  const name = pascalCase(id);
  const { examples } = about;
  const body = verb !== 'GET' && face.reads;
  const parameters = parametersOf(face);
  return {
    id,
    group: about.group,
    verb,
    path,
    dialect,
    access: face.access,
    summary: about.summary,
    ...(about.description === undefined ? {} : { description: about.description }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body ? { body: { 'application/json': media(`${name}Params`, examples, ({ params: sent }) => sent) } } : {}),
    answers: { 200: { description: 'The answer.', content: answerContent(name, face) } },
    errors: errorsOf(called, face),
    schemas: {
      ...(body ? { [`${name}Params`]: jsonSchema(about.params, 'draft-2020-12') } : {}),
      [`${name}Result`]: jsonSchema(about.result, 'draft-2020-12'),
      ...(about.event === undefined ? {} : { [`${name}Event`]: jsonSchema(about.event, 'draft-2020-12') }),
    },
  };
}

function media(schema: string, examples: readonly Example[], value: (example: Example) => unknown): Media {
  const shown = Object.fromEntries(examples.map((example) => [example.name, { value: value(example) }]));
  return { schema: refTo(schema), ...(examples.length === 0 ? {} : { examples: shown }) };
}

const isStream = ({ deltas, events }: Example): boolean => deltas !== undefined || events !== undefined;

const streamed = {
  'text/event-stream': 'Server-sent events, each a part of the answer. Asked for by "stream": true.',
  'application/x-ndjson': 'Lines of JSON, each a part of the answer; unless "stream" is false.',
};

function answerContent(name: string, { about: { examples, event, streamed: type } }: Face): Content {
  const whole = examples.filter((example) => !isStream(example));
  const json = { 'application/json': media(`${name}Result`, whole, ({ result }) => result) };
  if (type === undefined || event === undefined) return json;
  const events = media(`${name}Event`, examples.filter(isStream), type === 'text/event-stream' ? eventsText : linesText);
  return { ...json, [type]: { ...events, schema: { type: 'string', description: streamed[type] }, 'x-event': events.schema } };
}

const linesText = ({ events = [] }: Example): string => events.map((event) => `${JSON.stringify(event)}\n`).join('');

/** As dialects with events of their own write them: each has its name before it. */
function namedEvents(events: readonly object[]): string {
  return events.map((event) => `event: ${String((event as { type?: unknown }).type)}\ndata: ${JSON.stringify(event)}\n\n`).join('');
}

/** A streamed example as it goes over the wire. */
function eventsText({ result, deltas = [], events }: Example): string {
  if (events !== undefined) return namedEvents(events);
  const { id, object, created, model } = result as { id: string; object: string; created: number; model: string }; // proof: what streams has these
  const head = { id, object: object === 'chat.completion' ? 'chat.completion.chunk' : object, created, model };
  const chunks = deltas.map((choices) => {
    const { usage: _none, ...chunk } = chunkOf(head, choices);
    return JSON.stringify(chunk);
  });
  return [...chunks, '[DONE]'].map((data) => `data: ${data}\n\n`).join('');
}

/** The name in braces of the path, and the query of a GET that reads one. */
function parametersOf({ verb, path, reads, about }: Face): Parameter[] {
  const { examples } = about;
  const shape: Readonly<Record<string, unknown>> = about.params.shape;
  const inPath = /\{(\w+)\}$/.exec(path)?.[1];
  const names = verb === 'GET' && reads && inPath === undefined ? Object.keys(shape) : [];
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

/** What a body costs, what the state of the daemon allows, and what the methods name themselves. */
function errorsOf(methods: readonly Method[], { verb, dialect }: Face): number[] {
  const kinds = methods.flatMap(({ params, work, fails = [] }): readonly ErrorKind[] => [
    ...fails,
    ...('model' in params.shape ? (['model_not_found'] as const) : []),
    ...(work ? (['shutting_down', 'model_loading', 'overloaded', 'engine_failure'] as const) : []),
  ]);
  const statuses = kinds.map((kind) => dialect.failure({ kind }).status);
  return [...new Set(verb === 'GET' ? statuses : [...statuses, 413])];
}

/** "chat.completions.create" as "ChatCompletionsCreate". */
function pascalCase(name: string): string {
  return name.replace(/(?:^|[^A-Za-z]+)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
