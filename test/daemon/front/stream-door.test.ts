/** Streamed answers over real sockets, as OpenAI's server-sent events. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { StreamDoor } from '../../../daemon/front/stream-door.js';
import { chunkEvents } from '../../../rpc/dialects/openai/stream.js';
import type { CallSink } from '../../../rpc/sink.js';
import { eventually } from '../../helpers/eventually.js';

const head = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 7, model: 'm' };
const delta = (content: string) => ({ kind: 'delta' as const, choices: [{ index: 0, delta: { content } }], tokens: 1 });

const counted = (): never => assert.fail('chunks do not ask what was counted');

interface Streaming {
  readonly door: StreamDoor;
  readonly sink: CallSink;
  readonly reader: IncomingMessage;
  /** All that came so far. */
  text(): string;
}

/** One stream between a server and a reader; `begin` writes what makes its head leave. */
async function streaming(
  options: { usage?: boolean; keepAliveMs?: number },
  begin: (sink: CallSink) => void,
  body: (s: Streaming) => Promise<void>,
) {
  const doors: { door: StreamDoor; sink: CallSink }[] = [];
  const server = createServer((_, response) => {
    const door = new StreamDoor(response, chunkEvents, options.keepAliveMs);
    const sink = door.choose({ stream: true, usage: options.usage ?? false })(head, () => {}, counted);
    doors.push({ door, sink });
    begin(sink);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const asked = httpRequest({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).end();
  const [reader] = (await once(asked, 'response')) as [IncomingMessage];
  let text = '';
  reader.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  const [first] = doors;
  assert.ok(first);
  try {
    await body({ ...first, reader, text: () => text });
  } finally {
    first.sink.close();
    asked.destroy();
    server.closeAllConnections();
    server.close();
  }
}

const first = (sink: CallSink) => sink.event(delta('a'));

test('each delta is a chunk of the answer, the usage comes where it was asked for, and [DONE] ends it', async () => {
  for (const usage of [true, false]) {
    await streaming({ usage }, first, async ({ door, sink, reader, text }) => {
      sink.event(delta('b\n'));
      door.end({ usage: { total_tokens: 3 } });
      await once(reader, 'end');
      assert.equal(reader.headers['content-type'], 'text/event-stream; charset=utf-8');
      const events = text().split('\n\n');
      assert.equal(events.pop(), '');
      assert.equal(events.pop(), 'data: [DONE]');
      const chunks = events.map((event) => JSON.parse(event.replace(/^data: /, '')) as object);
      const more = usage ? { usage: null } : {};
      assert.deepEqual(chunks, [
        { ...head, choices: [{ index: 0, delta: { content: 'a' } }], ...more },
        { ...head, choices: [{ index: 0, delta: { content: 'b\n' } }], ...more },
        ...(usage ? [{ ...head, choices: [], usage: { total_tokens: 3 } }] : []),
      ]);
    });
  }
});

test('what a chunk says beside its choices stands in it', async () => {
  const fields = { prompt_token_ids: [1, 2] };
  for (const usage of [true, false]) {
    await streaming(
      { usage },
      (sink) => sink.event({ ...delta('a'), fields }),
      async ({ door, reader, text }) => {
        door.end({ usage: {} });
        await once(reader, 'end');
        const chunk = { ...head, choices: [{ index: 0, delta: { content: 'a' } }], ...fields, ...(usage ? { usage: null } : {}) };
        assert.deepEqual(JSON.parse(text().split('\n\n')[0]?.slice(6) ?? ''), chunk);
      },
    );
  }
});

test('an error within the stream is an event with all four fields', async () => {
  await streaming({}, first, async ({ door, reader, text }) => {
    assert.equal(door.begun, true);
    door.fail({ kind: 'engine_failure' });
    await once(reader, 'end');
    const [, error, done] = text().split('\n\n');
    assert.deepEqual(JSON.parse(error?.slice(6) ?? ''), {
      error: { message: 'The engine failed', type: 'server_error', param: null, code: 'engine_failure' },
    });
    assert.equal(done, 'data: [DONE]');
  });
});

test('comments keep a silent stream alive, also before its first event', async () => {
  await streaming(
    { keepAliveMs: 30 },
    () => {},
    async ({ sink, text }) => {
      await eventually('two comments', () => text().split(': the answer is being made').length > 2);
      sink.event(delta('late'));
      await eventually('the delta', () => text().includes('late'));
      assert.match(text(), /^(: .*\n\n)+data: \{/);
    },
  );
});

test('a reader that takes nothing makes the stream full, and one that reads again makes room', async () => {
  await streaming({}, first, async ({ sink, reader }) => {
    reader.pause();
    const big = 'x'.repeat(2 ** 16);
    for (let i = 0; i < 1000 && !sink.full; i++) {
      sink.event(delta(big));
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(sink.full, true);
    const took = sink.watch();
    assert.equal(took(), false);
    reader.resume();
    await eventually('it has room', () => !sink.full);
  });
});
