/**
 * Every example of both documents, sent to a daemon with the demo model: its answer fits the schema that stands beside it, and is what the
 * document says it is, save ids, times and counts.
 */
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { hubCachePath } from '../../config/paths.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { differences } from '../helpers/documented.js';
import { fixture } from '../helpers/native/native-engine.js';
import { openapiFaults, openrpcFaults } from '../helpers/schemas.js';

interface Named {
  readonly name: string;
  readonly value: unknown;
}
interface RpcExample {
  readonly name: string;
  readonly params: readonly Named[];
  readonly result: Named & { readonly 'x-progress'?: readonly object[] };
}
interface RpcMethod {
  readonly name: string;
  readonly params: readonly { readonly name: string; readonly schema: object }[];
  readonly result: { readonly schema: object };
  readonly examples?: readonly RpcExample[];
  readonly 'x-progress'?: object;
}
interface Media {
  readonly schema: object;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
  readonly 'x-event'?: object;
}
type Content = Readonly<Record<string, Media>>;
interface HttpOperation {
  readonly operationId: string;
  readonly parameters?: readonly { readonly name: string; readonly examples?: Media['examples'] }[];
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, { readonly content?: Content }>>;
}
interface Openapi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, HttpOperation>>>>;
  readonly components: object;
}

/** It ends the daemon, so it has one of its own. */
const LAST = 'daemon.drain';

// Adapters of its own folder may be loaded.
const at = await startTestDaemon(['lora.enabled=true', `lora.folders=[${JSON.stringify(fixture())}]`]);
// One that may be deleted.
mkdirSync(join(hubCachePath(null, at.env), 'models--org--tiny', 'snapshots', '0'.repeat(40)), { recursive: true });
const socket = await at.open();
const read = async (path: string): Promise<unknown> => (await fetch(at.http + path)).json();
const openrpc = (await read('/openrpc.json')) as { readonly methods: readonly RpcMethod[] };
const openapi = (await read('/openapi.json')) as Openapi;
after(async () => {
  await socket.close();
  await at.close();
});

const valuesOf = (params: readonly Named[]): Record<string, unknown> => Object.fromEntries(params.map(({ name, value }) => [name, value]));

function checkParams({ params }: RpcMethod, example: RpcExample): void {
  for (const { name, value } of example.params) {
    const schema = params.find((param) => param.name === name)?.schema;
    assert.ok(schema !== undefined, `a param ${name}`);
    assert.deepEqual(openrpcFaults(value, schema), [], name);
  }
}

function checkResult(method: RpcMethod, example: RpcExample, result: unknown): void {
  assert.deepEqual(openrpcFaults(example.result.value, method.result.schema), [], 'the documented result');
  assert.deepEqual(openrpcFaults(result, method.result.schema), [], 'the result');
  assert.deepEqual(differences(example.result.value, result), []);
}

test('every method that can be done has an example', () => {
  const without = openrpc.methods.filter(
    ({ examples, ...rest }) => examples === undefined && !JSON.stringify(rest).includes('Answers -32011'),
  );
  assert.deepEqual(
    without.map(({ name }) => name),
    [],
  );
});

for (const method of openrpc.methods.filter(({ name }) => name !== LAST)) {
  for (const example of method.examples ?? []) {
    test(`${method.name}: "${example.name}" is answered as documented`, async () => {
      checkParams(method, example);
      const id = socket.send(method.name, valuesOf(example.params));
      const { result, error } = await socket.reply(id);
      assert.equal(error, undefined);
      checkResult(method, example, result);
      const events = socket.events(id).map(({ params }) => params);
      const documented = example.result['x-progress'] ?? [];
      assert.equal(events.length > 0, documented.length > 0, 'events');
      for (const event of [...events, ...documented]) assert.deepEqual(openrpcFaults(event, method['x-progress'] ?? {}), []);
      assert.equal(textOf(events), textOf(documented));
    });
  }
}

/** What the deltas of a stream add up to. */
function textOf(events: readonly unknown[]): string {
  const named = (events as readonly { readonly type?: string; readonly delta?: unknown }[]).filter(({ type }) => type !== undefined);
  if (named.length > 0) return named.map(({ type, delta }) => (String(type).endsWith('text.delta') ? String(delta) : '')).join('');
  const lines = events as readonly {
    readonly message?: { readonly content: string };
    readonly response?: string;
    readonly done?: boolean;
  }[];
  if (lines[0]?.done !== undefined) return lines.map(({ message, response }) => message?.content ?? response ?? '').join('');
  const choices = events.flatMap(
    (event) => (event as { readonly choices?: readonly { delta?: { content?: string }; text?: string }[] }).choices ?? [],
  );
  return choices.map(({ delta, text }) => delta?.content ?? text ?? '').join('');
}

for (const [path, item] of Object.entries(openapi.paths)) {
  for (const [verb, operation] of Object.entries(item)) {
    for (const name of exampleNames(operation)) {
      test(`${verb.toUpperCase()} ${path}: "${name}" is answered as documented`, () => askByHttp(path, verb, operation, name));
    }
  }
}

/** Of its body, else of its answer; one without either is asked once. */
function exampleNames({ parameters = [], requestBody, responses }: HttpOperation): readonly string[] {
  const answers = Object.values(responses[200]?.content ?? {}).flatMap(({ examples }) => Object.keys(examples ?? {}));
  const bodies = Object.values(requestBody?.content ?? {}).flatMap(({ examples }) => Object.keys(examples ?? {}));
  const others = parameters.flatMap(({ examples }) => Object.keys(examples ?? {}));
  if (requestBody !== undefined) {
    assert.ok(bodies.length > 0, 'what takes a body has an example');
    assert.deepEqual(
      answers.filter((name) => !bodies.includes(name)),
      [],
      'every answer has its question',
    );
  }
  const names = new Set([...bodies, ...others, ...answers]);
  return names.size === 0 ? ['nothing'] : [...names];
}

async function askByHttp(path: string, verb: string, operation: HttpOperation, name: string): Promise<void> {
  const { components } = openapi;
  const url = (operation.parameters ?? []).reduce(
    (text, parameter) => text.replace(`{${parameter.name}}`, encodeURIComponent(String(parameter.examples?.[name]?.value))),
    path,
  );
  const asked = operation.requestBody?.content['application/json'];
  const body = asked?.examples?.[name]?.value;
  if (asked !== undefined) assert.deepEqual(openapiFaults(body, asked.schema, components), [], 'the body');
  const init = asked === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const response = await fetch(at.http + url, { method: verb.toUpperCase(), ...init });
  const text = await response.text();
  const documented = operation.responses[response.status];
  assert.ok(documented !== undefined && response.status < 300, `status ${response.status}: ${text.slice(0, 200)}`);
  if (documented.content === undefined) {
    assert.equal(text, '');
    return;
  }
  const type = response.headers.get('content-type')?.split(';')[0] ?? '';
  const media = documented.content[type];
  assert.ok(media !== undefined, `${type} is documented`);
  const shown = media.examples?.[name]?.value;
  if (type === 'text/event-stream' || type === 'application/x-ndjson') {
    assert.ok(typeof shown === 'string');
    const [events, expected] = [eventsOf(text), eventsOf(shown)];
    for (const event of [...events, ...expected]) assert.deepEqual(openapiFaults(event, media['x-event'] ?? {}, components), []);
    assert.equal(textOf(events), textOf(expected));
    assert.deepEqual(differences(expected[0], events[0], { texts: false }), []);
  } else {
    const value: unknown = type === 'application/json' ? JSON.parse(text) : text;
    assert.deepEqual(openapiFaults(value, media.schema, components), []);
    if (shown === undefined) return;
    assert.deepEqual(openapiFaults(shown, media.schema, components), [], 'the documented answer');
    assert.deepEqual(differences(shown, value), []);
  }
}

function eventsOf(text: string): unknown[] {
  if (text.startsWith('{'))
    return text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);
  const data = text.split('\n').flatMap((line) => (line.startsWith('data: ') ? [line.slice(6)] : []));
  // Dialects with names for their events end with the last of these.
  if (!text.startsWith('event: ')) assert.equal(data.pop(), '[DONE]');
  return data.map((one) => JSON.parse(one) as unknown);
}

test(`${LAST} is answered as documented, and ends the daemon`, async () => {
  const method = openrpc.methods.find(({ name }) => name === LAST);
  const example = method?.examples?.[0];
  assert.ok(method !== undefined && example !== undefined);
  const other = await startTestDaemon();
  const client = await other.open();
  const { result } = await client.reply(client.send(LAST, valuesOf(example.params)));
  checkResult(method, example, result);
  await other.close();
});
