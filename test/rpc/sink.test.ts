/**
 * A way to stream that the daemon does not have: lines of chunks in memory, as server-sent events would be. It is plugged in at the door
 * and nowhere else, and gets what a whole answer says.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CallTable } from '../../rpc/calls.js';
import { type AnswerHead, type Chunk, chunkOf } from '../../rpc/client/chunk.js';
import type { Response } from '../../rpc/message.js';
import { allScopes } from '../../rpc/scope.js';
import type { RpcServer } from '../../rpc/server.js';
import type { CallSink, SinkEvent, SinkMaker } from '../../rpc/sink.js';
import { words } from '../helpers/engine/fake-engine-client.js';
import { at, chat, settle, setup } from './harness.js';

/** Takes `limit` lines before its reader takes them. */
class LineSink implements CallSink {
  readonly credit = Number.POSITIVE_INFINITY;
  readonly lines: string[] = [];
  numEvents = 0;
  closed = false;
  readonly #head: AnswerHead;
  readonly #limit: number;
  readonly #onRoom: () => void;
  #taken = 0;

  constructor(head: AnswerHead, limit: number, onRoom: () => void) {
    this.#head = head;
    this.#limit = limit;
    this.#onRoom = onRoom;
  }

  get full(): boolean {
    return this.lines.length >= this.#limit;
  }

  event(event: SinkEvent): void {
    assert.ok(!this.closed, 'nothing comes after the end');
    this.numEvents++;
    this.lines.push(event.kind === 'delta' ? `data: ${JSON.stringify(chunkOf(this.#head, event.choices))}\n\n` : `: ${event.kind}\n\n`);
  }

  watch(): () => boolean {
    const before = this.#taken;
    return () => this.#taken !== before;
  }

  close(): void {
    assert.ok(!this.closed, 'it is closed once');
    this.closed = true;
  }

  /** The reader takes the first line; all are gone when not said. */
  take(count = this.lines.length): string[] {
    const taken = this.lines.splice(0, count);
    this.#taken += taken.length;
    this.#onRoom();
    return taken;
  }
}

/** One caller whose streams are lines. */
class LineDoor implements SinkMaker {
  readonly kind = 'http';
  readonly sinks: LineSink[] = [];
  readonly calls = new CallTable(8);
  readonly #server: RpcServer;
  readonly #limit: number;

  constructor(server: RpcServer, limit = Number.POSITIVE_INFINITY) {
    this.#server = server;
    this.#limit = limit;
  }

  choose(): ReturnType<SinkMaker['choose']> {
    return (head, onRoom) => {
      const sink = new LineSink(head, this.#limit, onRoom);
      this.sinks.push(sink);
      return sink;
    };
  }

  get sink(): LineSink {
    const sink = this.sinks.at(-1);
    assert.ok(sink, 'no stream was opened');
    return sink;
  }

  async ask(method: string, params: object): Promise<Response> {
    const holding = this.#server.holdings.open();
    const member = { kind: 'call' as const, id: 1, method, params: params as Record<string, unknown> };
    const caller = {
      calls: this.calls,
      session: null,
      sinks: this,
      client: this,
      scopes: allScopes,
      holding,
      arrivalMs: performance.now(),
    };
    const reply = (await this.#server.answer({ kind: 'single', member }, caller, 100)) as Response; // one call, one response
    const plain = JSON.parse(JSON.stringify(reply)) as Response; // as it would be written
    holding.release();
    return plain;
  }
}

const chunksOf = (lines: readonly string[]): Chunk[] =>
  lines.filter((line) => line.startsWith('data: ')).map((line) => JSON.parse(line.slice(6)) as Chunk);

/** What the chunks say of one choice, put together. */
function joined(chunks: readonly Chunk[], index: number) {
  const own = chunks.flatMap((chunk) => chunk.choices.filter((choice) => at(choice, 'index') === index));
  const column = (...path: string[]) => own.flatMap((choice) => (at(choice, 'logprobs', ...path) as unknown[] | undefined) ?? []);
  return {
    text: own.map((choice) => at(choice, 'delta', 'content') ?? at(choice, 'text') ?? '').join(''),
    finish: own.map((choice) => at(choice, 'finish_reason')).filter((reason) => reason !== null),
    content: column('content'),
    tokens: column('tokens'),
    offsets: column('text_offset'),
    values: column('token_logprobs'),
    tops: column('top_logprobs'),
  };
}

function whole(choice: unknown) {
  const column = (...path: string[]) => at(choice, 'logprobs', ...path) ?? [];
  return {
    text: at(choice, 'message', 'content') ?? at(choice, 'text'),
    finish: [at(choice, 'finish_reason')],
    content: column('content'),
    tokens: column('tokens'),
    offsets: column('text_offset'),
    values: column('token_logprobs'),
    tops: column('top_logprobs'),
  };
}

const long = Array.from({ length: 1000 }, (_, i) => `w${i}`).join(' ');
const create = 'chat.completions.create';

describe('a sink of another kind', () => {
  for (const [method, object, body] of [
    [create, 'chat.completion.chunk', chat('one two three', { n: 2, temperature: 1, logprobs: true, top_logprobs: 2 })],
    ['completions.create', 'text_completion', { prompt: ['abc', 'de'], n: 2, temperature: 1, echo: true, logprobs: 2, max_tokens: 3 }],
  ] as const) {
    for (const limit of [Number.POSITIVE_INFINITY, 1]) {
      test(`gets the text, ends and log-probabilities of a whole answer: ${method}, ${limit === 1 ? 'merged' : 'as they come'}`, async () => {
        const answer = await new LineDoor(setup().server).ask(method, body);
        const door = new LineDoor(setup().server, limit);
        const lines: string[] = [];
        let ended = false;
        const streaming = door.ask(method, { ...body, stream: true }).finally(() => {
          ended = true;
        });
        while (!ended) {
          await settle(3);
          lines.push(...door.sink.take());
        }
        const end = await streaming;
        const chunks = chunksOf(lines);
        const wholes = at(answer, 'result', 'choices') as unknown[];
        assert.ok(wholes.length > 1 && chunks.length > 1);
        for (const [index, choice] of wholes.entries()) assert.deepEqual(joined(chunks, index), whole(choice));
        for (const chunk of chunks) {
          assert.deepEqual(
            { id: chunk.id, object: chunk.object, created: chunk.created, model: chunk.model, usage: chunk.usage },
            { id: at(end, 'result', 'id'), object, created: at(end, 'result', 'created'), model: 'fake', usage: null },
          );
        }
        assert.equal(at(end, 'result', 'usage', 'completion_tokens'), at(answer, 'result', 'usage', 'completion_tokens'));
        assert.ok(door.sink.closed);
      });
    }
  }

  test('that is full has the sequences paused, and they go on when its reader takes', async () => {
    const { engine, server } = setup({ auto: false });
    engine.script = () => words(long);
    const door = new LineDoor(server, 1);
    const answering = door.ask(create, chat('x', { stream: true }));
    const lines: string[] = [];
    for (let i = 0; i < 257; i++) engine.step();
    assert.equal(door.sink.lines.length, 1);
    assert.deepEqual(
      engine.pauses.map(({ paused }) => paused),
      [true],
    );
    lines.push(...door.sink.take());
    assert.deepEqual(
      engine.pauses.map(({ paused }) => paused),
      [true, false],
    );
    assert.equal(chunksOf(door.sink.lines).length, 1, 'what waited comes merged');
    while (engine.live.length > 0) {
      engine.step();
      lines.push(...door.sink.take());
    }
    await answering;
    lines.push(...door.sink.take());
    assert.equal(joined(chunksOf(lines), 0).text, long);
  });

  test('hears of queue and prefill, unless it is full', async () => {
    const { engine, server } = setup({ auto: false });
    const door = new LineDoor(server, 1);
    const answering = door.ask(create, chat('x', { stream: true }));
    const [request] = engine.live;
    assert.ok(request);
    engine.notice(request, { kind: 'queued', id: request.id, position: 1 });
    engine.notice(request, { kind: 'prefill', id: request.id, done: 1, total: 2 });
    assert.deepEqual(door.sink.take(), [': queued\n\n']);
    door.calls.cancelAll();
    await answering;
  });

  test('whose reader leaves has its call cancelled, and gets nothing more', async () => {
    const { engine, server } = setup({ auto: false });
    const door = new LineDoor(server);
    const answering = door.ask(create, chat('a b c', { stream: true }));
    engine.step();
    engine.step();
    door.calls.cancelAll();
    assert.ok(door.sink.closed);
    engine.step();
    const end = await answering;
    assert.equal(at(end, 'error', 'code'), -32800);
    assert.equal(at(end, 'error', 'data', 'last_seq'), 1);
    assert.equal(engine.live.length, 0);
    assert.equal(chunksOf(door.sink.lines).length, 2);
  });

  test('whose reader takes nothing for too long loses its call; one that takes keeps it', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { engine, server } = setup({ auto: false, config: { server: { slow_client_timeout_s: 30 } } });
    engine.script = () => words(long);
    const door = new LineDoor(server, 2);
    const answering = door.ask(create, chat('x', { stream: true }));
    for (let i = 0; i < 5; i++) engine.step();
    door.sink.take(1);
    engine.step();
    t.mock.timers.tick(29_999);
    assert.equal(engine.live.length, 1);
    t.mock.timers.tick(1);
    assert.equal(at(await answering, 'error', 'code'), -32008);
    assert.equal(engine.live.length, 0);
  });
});
