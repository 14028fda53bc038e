/** Spans of a whole daemon, as a collector gets them over HTTP. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { tracesUrl } from '../../../daemon/tracing/otlp.js';
import { packageRoot } from '../../../native/index.js';
import { privateEnv, startTestDaemon } from '../../helpers/daemon/daemon.js';

interface Sent {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly SentSpan[] }[];
  }[];
}
interface Attribute {
  readonly key: string;
  readonly value: Readonly<Record<string, unknown>>;
}
interface SentSpan {
  readonly name: string;
  readonly traceId: string;
  readonly parentSpanId?: string;
  readonly attributes: readonly Attribute[];
  readonly events: readonly { readonly name: string }[];
}

/** A collector that keeps what it gets. */
async function startCollector() {
  const bodies: { path: string; text: string }[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += String(part);
    bodies.push({ path: request.url ?? '', text });
    response.setHeader('content-type', 'application/json').end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { bodies, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

const traceId = '0af7651916cd43dd8448eb211c80319c';
const parent = 'b7ad6b7169203331';

test('a daemon sends one span a request, of every door, under the span of the caller, and none of its text', async () => {
  const collector = await startCollector();
  const at = await startTestDaemon([`metrics.otlp_endpoint="${collector.url}"`]);
  try {
    const post = (path: string, body: object) =>
      fetch(`${at.http}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', traceparent: `00-${traceId}-${parent}-01` },
        body: JSON.stringify(body),
      }).then((response) => response.text());
    const secret = 'What is 123 + 456?';
    await post('/v1/chat/completions', { messages: [{ role: 'user', content: secret }], temperature: 0, stream: true });
    await post('/v1/completions', { prompt: [secret, secret], max_tokens: 3, ignore_eos: true });
    await post('/v1/completions', { prompt: secret, max_tokens: -1 });
    const socket = await at.open();
    await socket.call('chat.completions.create', { messages: [{ role: 'user', content: secret }], temperature: 0 });
    await socket.call('ping');
    await socket.close();
  } finally {
    await at.close();
    collector.close();
  }
  assert.ok(collector.bodies.every(({ path }) => path === '/v1/traces'));
  assert.ok(collector.bodies.every(({ text }) => !/What is|= 579/.test(text)));
  const sent = collector.bodies.map(({ text }) => JSON.parse(text) as Sent).flatMap(({ resourceSpans }) => resourceSpans);
  assert.ok(sent[0]?.resource.attributes.some(({ key, value }) => key === 'service.name' && value['stringValue'] === 'inferd'));
  const spans = sent.flatMap(({ scopeSpans }) => scopeSpans).flatMap((scope) => scope.spans);
  const shown = spans.map((span) => [
    span.name,
    span.traceId === traceId && span.parentSpanId === parent,
    span.events.map(({ name }) => name),
  ]);
  assert.deepEqual(shown, [
    ['chat demo', true, ['gen_ai.first_token']],
    ['text_completion demo', true, ['gen_ai.first_token']],
    ['text_completion demo', true, []],
    ['chat demo', false, ['gen_ai.first_token']],
  ]);
  const has = (span: SentSpan | undefined, name: string) => JSON.stringify(span?.attributes.find(({ key }) => key === name)?.value ?? null);
  assert.match(has(spans[0], 'gen_ai.response.finish_reasons'), /"stop"/);
  assert.equal(has(spans[1], 'gen_ai.usage.output_tokens'), '{"intValue":6}');
  assert.equal(has(spans[2], 'error.type'), '{"stringValue":"invalid_params"}');
});

test('a collector that is away costs requests nothing and holds no stop up for long', async () => {
  const at = await startTestDaemon(['metrics.otlp_endpoint="http://127.0.0.1:9"']);
  const body = JSON.stringify({ prompt: 'x', max_tokens: 1 });
  const answer = await fetch(`${at.http}/v1/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  assert.equal(answer.status, 200);
  await answer.text();
  await at.close();
  assert.equal(await at.daemon.stopped, 0);
});

test('an endpoint is a base address or the whole one, and no address is refused at the start', async () => {
  assert.equal(tracesUrl('http://box:4318'), 'http://box:4318/v1/traces');
  assert.equal(tracesUrl('http://box:4318/'), 'http://box:4318/v1/traces');
  assert.equal(tracesUrl('https://box/otel/v1/traces'), 'https://box/otel/v1/traces');
  await assert.rejects(
    startTestDaemon(['metrics.otlp_endpoint=box:4318']),
    /metrics\.otlp_endpoint = "box:4318" is not allowed; expected the address/,
  );
});

test('where the packages that send are not installed, the start ends with 78 and says what to install', async () => {
  // A resolver that finds none of them, as in a folder without.
  const hooks = `export async function resolve(name, context, next) {
    if (!/^@opentelemetry\\/(?!api)/.test(name)) return next(name, context);
    throw Object.assign(new Error('not found: ' + name), { code: 'ERR_MODULE_NOT_FOUND' });
  }`;
  const data = (text: string): string => `data:text/javascript,${encodeURIComponent(text)}`;
  const register = `import { register } from 'node:module'; register(${JSON.stringify(data(hooks))});`;
  const main = join(packageRoot(), 'daemon', 'cli', 'inferd.mjs');
  const args = [
    '--import',
    data(register),
    main,
    'serve',
    '--set',
    'server.port=0',
    '--set',
    'log.level=silent',
    '--set',
    'metrics.otlp_endpoint="http://127.0.0.1:9"',
  ];
  const child = spawn(process.execPath, args, { env: privateEnv() });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const [code] = (await once(child, 'close')) as [number];
  assert.equal(code, 78);
  assert.match(
    stderr,
    /^inferd: metrics\.otlp_endpoint needs packages that are not installed: run "npm install @opentelemetry\/sdk-trace-node@2 .*" beside inferd, or leave it away\n$/m,
  );
});
