/** The load of `bench serve` against a server that misbehaves: what is counted, how many are in flight, what an end in the middle leaves. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { Asking, BenchServer } from '../../../../../daemon/cli/bench/serve/backends/backend.js';
import { SseReader } from '../../../../../daemon/cli/bench/serve/backends/sse-reader.js';
import { backends } from '../../../../../daemon/cli/bench/serve/backends/table.js';
import { liveLine } from '../../../../../daemon/cli/bench/serve/live-line.js';
import { type LoadResult, runLoad } from '../../../../../daemon/cli/bench/serve/load.js';
import { CliError } from '../../../../../daemon/cli/verb.js';
import { answerPieces, type Behaviour, type FakeOpenAi, startFakeOpenAi } from './fake-openai.js';

const asking: Asking = { model: null, ignoreEos: true, bestOf: 1, logprobs: null };
const io = { stdin: process.stdin, stdout: process.stdout, stderr: process.stderr, env: {} };

async function openBackend(name: string, base: string, change: Partial<Asking> = {}): Promise<BenchServer> {
  const backend = backends.find((b) => b.name === name);
  assert.ok(backend);
  const address = { base, endpoint: null, headers: { 'x-trace': 'yes' }, apiKey: 'secret', connections: 1 };
  return backend.open(address, { ...asking, ...change }, io);
}

async function withFake<T>(behave: (n: number) => Behaviour, use: (fake: FakeOpenAi) => Promise<T>): Promise<T> {
  const fake = await startFakeOpenAi(behave);
  try {
    return await use(fake);
  } finally {
    await fake.close();
  }
}

interface Wanted {
  readonly count: number;
  readonly maxConcurrency?: number;
  readonly signal?: AbortSignal;
  readonly everyS?: number;
}

function load(server: BenchServer, { count, maxConcurrency, signal, everyS = 0 }: Wanted): Promise<LoadResult> {
  return runLoad(server, {
    requests: Array.from({ length: count }, () => ({ prompt: 'Hello there', inputLen: 3, outputLen: 4 })),
    arrivals: Float64Array.from({ length: count }, (_, i) => i * everyS),
    maxConcurrency: maxConcurrency ?? null,
    signal: signal ?? new AbortController().signal,
    counts: { sent: 0, done: 0, failed: 0, chunks: 0 },
  });
}

test('each way in which an answer can fail is told, and the others count', async () => {
  const failures: readonly (readonly [Behaviour, RegExp])[] = [
    ['refused', /^HTTP 503: too busy$/],
    ['error event', /^the engine died$/],
    ['cut', /^The answer was cut after 2 chunks \(neither \[DONE\] nor a finish_reason\)$/],
    ['destroyed', /^The answer was cut after [12] chunks \(ECONNRESET\)$/],
    ['not JSON', /^The server sent a chunk that is not JSON$/],
  ];
  await withFake(
    (n) => failures[n]?.[0] ?? 'whole',
    async (fake) => {
      const server = await openBackend('openai', fake.url);
      const { samples } = await load(server, { count: failures.length + 2, maxConcurrency: 1 });
      for (const [i, [behaviour, message]] of failures.entries()) {
        assert.match(samples[i]?.error ?? '', message, behaviour);
        assert.equal(samples[i]?.outputLen, 0);
      }
      for (const whole of samples.slice(failures.length)) {
        assert.deepEqual([whole.error, whole.text, whole.inputLen, whole.outputLen], [null, answerPieces.join(''), 7, 9]);
        assert.equal(whole.chunkMs.length, answerPieces.length + 1, 'the last chunk has no text and counts');
      }
      await server.close();
    },
  );
});

test('chunks that come together have one time; without a usage and a tokenizer a chunk counts as a token', async () => {
  const behaviours: readonly Behaviour[] = ['two at once', 'no usage'];
  await withFake(
    (n) => behaviours[n] ?? 'whole',
    async (fake) => {
      const server = await openBackend('openai-chat', fake.url);
      assert.equal(server.tokenizer, null);
      const { samples } = await load(server, { count: 2, maxConcurrency: 1 });
      assert.ok(new Set(samples[0]?.chunkMs).size < 5);
      assert.deepEqual([samples[1]?.inputLen, samples[1]?.outputLen], [3, 5]);
      await server.close();
    },
  );
});

test('bodies are those that each kind of server knows, with key and headers', async () => {
  await withFake(
    () => 'whole',
    async (fake) => {
      for (const name of ['openai', 'openai-chat', 'vllm']) {
        const server = await openBackend(name, fake.url, { bestOf: 2, logprobs: 3, ignoreEos: name !== 'openai' });
        await load(server, { count: 1 });
        await server.close();
      }
      const common = { model: 'fake/model', temperature: 0, stream: true, stream_options: { include_usage: true } };
      const text = { ...common, prompt: 'Hello there', max_tokens: 4, best_of: 2, logprobs: 3 };
      assert.deepEqual(fake.bodies, [
        text,
        {
          ...{ ...common, messages: [{ role: 'user', content: 'Hello there' }], max_completion_tokens: 4 },
          ...{ logprobs: true, top_logprobs: 3, ignore_eos: true },
        },
        { ...text, ignore_eos: true, repetition_penalty: 1 },
      ]);
      assert.ok(fake.headers.every((h) => h.authorization === 'Bearer secret' && h['x-trace'] === 'yes'));
    },
  );
});

test('no more than the limit are in flight, and the clock of a request starts when it is sent', async () => {
  let [now, most] = [0, 0];
  const server: BenchServer = {
    ...{ url: 'x', model: { name: 'x', vocabSize: null }, tokenizer: null },
    generate: async (_request, on) => {
      most = Math.max(most, ++now);
      await new Promise((resolve) => setTimeout(resolve, 20));
      on({ atMs: performance.now(), text: 'a' });
      now--;
      return { prompt: 1, completion: 1 };
    },
    startProfile: () => Promise.resolve(),
    stopProfile: () => Promise.resolve(null),
    close: () => Promise.resolve(),
  };
  const { samples, startMs } = await load(server, { count: 20, maxConcurrency: 3 });
  assert.equal(most, 3);
  assert.equal(samples.length, 20);
  assert.ok((samples[19]?.sentMs ?? 0) - startMs > 100, 'the last one waited for six others in turn');
  const spaced = await load(server, { count: 4, everyS: 0.05 });
  spaced.samples.forEach(({ sentMs }, i) => {
    assert.ok(sentMs - spaced.startMs >= i * 50, 'no request before its time');
  });
});

test('a kept connection that the server closes is no failure of the request', async (t) => {
  const used = new WeakSet<object>();
  let closed = 0;
  const http = createServer(({ socket, url }, response) => {
    if (used.has(socket) && url === '/v1/completions') {
      closed++;
      socket.resetAndDestroy();
      return;
    }
    used.add(socket);
    const event = { choices: [{ text: 'a', finish_reason: 'length' }] };
    response.end(url === '/v1/models' ? '{"data":[{"id":"m"}]}' : `data: ${JSON.stringify(event)}\n\ndata: [DONE]\n\n`);
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  t.after(() => {
    http.closeAllConnections();
    http.close();
  });
  const server = await openBackend('openai', `http://127.0.0.1:${(http.address() as AddressInfo).port}`);
  const { samples } = await load(server, { count: 5, maxConcurrency: 1 });
  assert.deepEqual(
    samples.map((s) => s.error),
    Array.from({ length: 5 }, () => null),
  );
  assert.ok(closed >= 4);
  await server.close();
});

test('a run that is ended leaves what was answered before, and no error of its own', async () => {
  await withFake(
    (n) => (n === 0 ? 'whole' : 'slow'),
    async (fake) => {
      const server = await openBackend('openai', fake.url);
      const cancel = new AbortController();
      const running = load(server, { count: 6, maxConcurrency: 2, signal: cancel.signal });
      setTimeout(() => cancel.abort(), 200);
      const { samples } = await running;
      assert.deepEqual(
        samples.map((s) => s.error),
        [null],
      );
      await server.close();
    },
  );
});

test('a server that is not there, and one that does not say what it serves, are one sentence each', async () => {
  await assert.rejects(openBackend('openai', 'http://127.0.0.1:1'), (error) => error instanceof CliError && error.exitCode === 69);
  await assert.rejects(openBackend('inferd-ws', 'ws://127.0.0.1:1'), (error) => error instanceof CliError && error.exitCode === 69);
  await withFake(
    () => 'whole',
    async (fake) => {
      const named = await openBackend('openai', `${fake.url}/proxy`, { model: 'given' });
      assert.equal(named.model.name, 'given');
      await named.close();
      await assert.rejects(openBackend('openai', `${fake.url}/proxy`), (error) => error instanceof CliError && error.exitCode === 64);
    },
  );
});

test('events are read whatever way their bytes are cut', () => {
  const bytes = Buffer.from(': hello\n\ndata: {"a":"grüße"}\r\n\r\nevent: x\ndata: one\ndata: two\n\ndata:[DONE]\n\ndata: unfinished\n');
  for (const size of [1, 2, 3, 7, bytes.length]) {
    const read: string[] = [];
    const reader = new SseReader((data) => read.push(data));
    for (let i = 0; i < bytes.length; i += size) reader.push(bytes.subarray(i, i + size));
    assert.deepEqual(read, ['{"a":"grüße"}', 'one\ntwo', '[DONE]'], `pieces of ${size}`);
  }
});

test('the live line says how far the run is', () => {
  const blocks = { full: '#', empty: '.' };
  assert.equal(
    liveLine({ sent: 60, done: 50, failed: 0, chunks: 900 }, 100, 321.4, blocks),
    '##########.......... 50 of 100, 10 in flight, 900 chunks, 321/s',
  );
  assert.match(liveLine({ sent: 3, done: 1, failed: 2, chunks: 1 }, 3, 0, blocks), /^#{20} 3 of 3, 2 failed, 0 in flight/);
});
