/** Streams of the dialects against their whole answers: reasoning, text and calls of tools, cut anywhere; and streams that fail. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { at } from '../harness.js';
import { ask, type Event, eventsOf, type Model, serve, textDoor } from './asking.js';

/** What an answer says, in the words of no dialect. */
interface Essence {
  readonly thinking: string;
  readonly text: string;
  readonly calls: readonly (readonly [name: string, args: unknown])[];
  readonly end: unknown;
}

interface Dialect {
  readonly face: string;
  readonly body: object;
  whole(body: unknown): Essence;
  streamed(events: readonly Event[]): Essence;
}

const parameters = { type: 'object', properties: {} };
const names = ['add', 'now'];
const json = (text: string): unknown => JSON.parse(text);
const list = (value: unknown, ...path: (string | number)[]) => (at(value, ...path) ?? []) as readonly unknown[];
const joined = (events: readonly Event[], type: string, ...path: string[]) =>
  events.map((event) => (event.type === type ? ((at(event, ...path) as string | undefined) ?? '') : '')).join('');

const responses: Dialect = {
  face: 'responses.create',
  body: { input: 'x', tools: names.map((name) => ({ type: 'function', name, parameters })) },
  whole(body) {
    const of = (type: string) => list(body, 'output').filter((item) => at(item, 'type') === type);
    return {
      thinking: of('reasoning')
        .map((item) => at(item, 'content', 0, 'text'))
        .join(''),
      text: of('message')
        .map((item) => at(item, 'content', 0, 'text'))
        .join(''),
      calls: of('function_call').map((item) => [String(at(item, 'name')), json(String(at(item, 'arguments')))]),
      end: at(body, 'status'),
    };
  },
  streamed(events) {
    assert.deepEqual(
      events.map((event) => event['sequence_number']),
      events.map((_, i) => i),
    );
    const last = this.whole(events.at(-1)?.['response']);
    assert.equal(joined(events, 'response.output_text.delta', 'delta'), last.text);
    assert.equal(joined(events, 'response.reasoning_text.delta', 'delta'), last.thinking);
    for (const done of events.filter(({ type }) => type === 'response.output_item.done')) {
      const place = done['output_index'];
      const deltas = events.filter((event) => event['output_index'] === place && String(event.type).endsWith('.delta'));
      const told = at(done, 'item', 'arguments') ?? at(done, 'item', 'content', 0, 'text');
      assert.equal(deltas.map((event) => event['delta']).join(''), told);
    }
    return last;
  },
};

const messages: Dialect = {
  face: 'messages.create',
  body: {
    model: 'fake',
    max_tokens: 4000,
    messages: [{ role: 'user', content: 'x' }],
    tools: names.map((name) => ({ name, input_schema: parameters })),
  },
  whole(body) {
    const of = (type: string) => list(body, 'content').filter((block) => at(block, 'type') === type);
    return {
      thinking: of('thinking')
        .map((block) => at(block, 'thinking'))
        .join(''),
      text: of('text')
        .map((block) => at(block, 'text'))
        .join(''),
      calls: of('tool_use').map((block) => [String(at(block, 'name')), at(block, 'input')]),
      end: at(body, 'stop_reason'),
    };
  },
  streamed(events) {
    const types = events.map(({ type }) => type);
    assert.deepEqual([types[0], ...types.slice(-2)], ['message_start', 'message_delta', 'message_stop']);
    const starts = events.filter(({ type }) => type === 'content_block_start');
    assert.deepEqual(
      starts.map(({ index }) => index),
      starts.map((_, i) => i),
    );
    const of = (index: unknown) => events.filter((event) => event.type === 'content_block_delta' && event['index'] === index);
    const calls = starts.filter((start) => at(start, 'content_block', 'type') === 'tool_use');
    return {
      thinking: joined(events, 'content_block_delta', 'delta', 'thinking'),
      text: joined(events, 'content_block_delta', 'delta', 'text'),
      calls: calls.map(({ index, content_block }) => [
        String(at(content_block, 'name')),
        json(
          of(index)
            .map((event) => at(event, 'delta', 'partial_json'))
            .join(''),
        ),
      ]),
      end: at(events.at(-2), 'delta', 'stop_reason'),
    };
  },
};

const ollama: Dialect = {
  face: 'ollama.chat',
  body: {
    model: 'fake:latest',
    stream: false,
    messages: [{ role: 'user', content: 'x' }],
    tools: names.map((name) => ({ type: 'function', function: { name, parameters } })),
  },
  whole: (body) => ollama.streamed([body as Event]),
  streamed(lines) {
    assert.deepEqual(
      lines.map(({ done }) => done),
      lines.map((_, i) => i === lines.length - 1),
    );
    return {
      thinking: lines.map((one) => at(one, 'message', 'thinking') ?? '').join(''),
      text: lines.map((one) => at(one, 'message', 'content') ?? '').join(''),
      calls: lines
        .flatMap((one) => list(one, 'message', 'tool_calls'))
        .map((call) => [String(at(call, 'function', 'name')), at(call, 'function', 'arguments')]),
      end: lines.at(-1)?.['done_reason'],
    };
  },
};

const dialects = [responses, messages, ollama];
const template = "<tool_call>{% if '</think>' in x %}";
const hermes = (name: string, args: object): string => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;

/** Answers of all kinds, in tokens of any size. */
const answers = fc
  .record({
    thinking: fc.option(
      fc.string({ maxLength: 20 }).map((text) => `<think>${text.replaceAll('<', '')}</think>`),
      { nil: '' },
    ),
    text: fc.string({ unit: 'grapheme', maxLength: 30 }).map((text) => text.replaceAll('<', '')),
    calls: fc.array(fc.tuple(fc.constantFrom(...names), fc.dictionary(fc.string({ maxLength: 4 }), fc.integer(), { maxKeys: 3 })), {
      maxLength: 3,
    }),
    cut: fc.integer({ min: 1, max: 7 }),
  })
  .map(({ thinking, text, calls, cut }) => {
    const all = [...`${thinking}${text}${calls.map(([name, args]) => hermes(name, args)).join('\n')}`];
    const tokens: string[] = [];
    for (let i = 0; i < all.length; i += cut) tokens.push(all.slice(i, i + cut).join(''));
    return tokens.length === 0 ? ['.'] : tokens;
  });

describe('streams of the dialects', () => {
  for (const dialect of dialects) {
    test(`${dialect.face}: what is streamed adds up to the whole answer`, async () => {
      const served = serve({ template, script: [] });
      await fc.assert(
        fc.asyncProperty(answers, async (script) => {
          Object.assign(served.engine, { script: () => script });
          const whole = await ask(served, dialect.face, dialect.body);
          assert.equal(whole.reply.status, 200, whole.reply.body ?? '');
          const streamed = await ask(served, dialect.face, { ...dialect.body, stream: true });
          assert.equal(streamed.reply.streamed, true);
          assert.deepEqual(dialect.streamed(streamed.events), dialect.whole(whole.body));
        }),
        { numRuns: 60 },
      );
    });
  }

  test('all of them say the same of one answer', async () => {
    const model: Model = { template, script: ['<think>', 'Hm', '</think>', 'Well.', hermes('add', { a: 1 }), hermes('now', {})] };
    const told = await Promise.all(
      dialects.map(async (dialect) => {
        const { end: _end, ...same } = dialect.whole((await ask(serve(model), dialect.face, dialect.body)).body);
        return same;
      }),
    );
    const wanted = {
      thinking: 'Hm',
      text: 'Well.',
      calls: [
        ['add', { a: 1 }],
        ['now', {}],
      ],
    };
    for (const one of told) assert.deepEqual(one, wanted);
  });

  test('blocks follow one another, each closed before the next begins', async () => {
    const model: Model = { template, script: ['<think>', 'Hm', '</think>', 'Well.', hermes('add', { a: 1 }), hermes('now', {})] };
    const { events } = await ask(serve(model), messages.face, { ...messages.body, stream: true });
    const order = events.filter(({ type }) => type?.startsWith('content_block')).map(({ type, index }) => `${index} ${type?.slice(14)}`);
    assert.deepEqual(
      order.filter((one, i) => one !== order[i - 1]),
      [0, 1, 2, 3].flatMap((index) => [`${index} start`, `${index} delta`, `${index} stop`]),
    );
    const kinds = events.filter(({ type }) => type === 'content_block_start').map((event) => at(event, 'content_block', 'type'));
    assert.deepEqual(kinds, ['thinking', 'text', 'tool_use', 'tool_use']);
  });

  test('a call that the number of tokens cut is told as far as it came, and nobody takes it for whole', async () => {
    const model: Model = { template, script: ['<tool_call>', '{"name": "add",', '"arguments": {"a', '": 1', '}}'] };
    const cut = await ask(serve(model), messages.face, { ...messages.body, max_tokens: 4 });
    assert.deepEqual([at(cut.body, 'stop_reason'), at(cut.body, 'content', 0, 'input')], ['max_tokens', {}]);
    const response = await ask(serve(model), responses.face, { ...responses.body, max_output_tokens: 4 });
    assert.deepEqual(
      [at(response.body, 'status'), at(response.body, 'output', 0, 'status'), at(response.body, 'output', 0, 'arguments')],
      ['incomplete', 'incomplete', '{"a": 1'],
    );
    for (const stream of [false, true]) {
      const { body, events } = await ask(serve(model), ollama.face, { ...ollama.body, stream, options: { num_predict: 4 } });
      const last = stream ? events.at(-1) : body;
      assert.deepEqual([at(last, 'done_reason'), at(last, 'message', 'tool_calls')], ['length', undefined]);
    }
  });

  test('what fails before the first event has its status, what fails later is an event of the dialect', async () => {
    const ends: Readonly<Record<string, (events: readonly Event[]) => unknown>> = {
      [responses.face]: (events) => [events.at(-2)?.type, events.at(-1)?.type, at(events.at(-1), 'response', 'error', 'code')],
      [messages.face]: (events) => [events.at(-1)?.type, at(events.at(-1), 'error', 'type')],
      [ollama.face]: (events) => events.at(-1),
    };
    const wanted: Readonly<Record<string, unknown>> = {
      [responses.face]: ['error', 'response.failed', 'server_error'],
      [messages.face]: ['error', 'api_error'],
      [ollama.face]: { error: 'The engine failed' },
    };
    const early: Readonly<Record<string, number>> = { [responses.face]: 429, [messages.face]: 529, [ollama.face]: 429 };
    for (const { face, body } of dialects) {
      const { engine, server } = serve({ script: [] }, false);
      const bytes = Buffer.from(JSON.stringify({ ...body, stream: true }));
      const refused = server.handleCall(face, { body: bytes, sinks: textDoor().sinks });
      engine.live[0]?.sink.onEnd({ kind: 'overloaded', data: { retry_after_ms: 2500 } });
      const { status, retryAfterS } = await refused;
      assert.deepEqual([status, retryAfterS], [early[face], 3], face);
      const door = textDoor();
      const broken = server.handleCall(face, { body: bytes, sinks: door.sinks });
      const request = engine.live.at(-1);
      assert.ok(request);
      request.sink.onDeltas([{ id: request.id, index: 0, text: 'You', tokens: [1] }]);
      request.sink.onEnd({ kind: 'engine_failure' });
      assert.equal((await broken).streamed, true);
      assert.deepEqual(ends[face]?.(eventsOf(door.text())), wanted[face]);
      assert.match(door.text(), /You/);
    }
  });

  test('a silent stream shows signs of life that its clients take', async () => {
    const signs: Readonly<Record<string, RegExp>> = {
      [responses.face]: /^: /,
      [messages.face]: /^event: message_start\n.*\n\nevent: ping\ndata: {"type":"ping"}\n\n$/,
      [ollama.face]: /^{"model":"fake:latest",.*"content":"".*"done":false}\n$/,
    };
    for (const { face, body } of dialects) {
      const { engine, server } = serve({ script: [] }, false);
      const door = textDoor();
      const gone = new AbortController();
      const asked = server.handleCall(face, {
        body: Buffer.from(JSON.stringify({ ...body, stream: true })),
        sinks: door.sinks,
        signal: gone.signal,
      });
      door.silence();
      assert.match(door.text(), signs[face] ?? /^$/);
      gone.abort();
      await asked;
      assert.equal(engine.live.length, 0, 'a client that leaves cancels its call');
    }
  });
});
