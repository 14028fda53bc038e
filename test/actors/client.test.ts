import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { ActorClient } from '../../actors/client.js';
import { RequestIds } from '../../actors/client-ids.js';
import type { RequestHandle, RequestSink } from '../../actors/client-types.js';
import type { CallReply, EngineCall, TokenizerCall } from '../../actors/messages/calls.js';
import { bytesOf } from '../../actors/messages/codec.js';
import type { Failure } from '../../actors/messages/errors.js';
import type { RequestId } from '../../actors/messages/ids.js';
import type { Abort, Deltas, Encoded, Failed, Flow, Notices, Submit } from '../../actors/messages/requests.js';
import { Cancellation } from '../../actors/runtime/cancellation.js';
import { nowMs } from '../../actors/runtime/clock.js';
import { createCounters, SCHEDULER_COUNTER, TOKENIZER_COUNTER } from '../../actors/runtime/counters.js';
import { createDoorbell, listen } from '../../actors/runtime/doorbell.js';
import { silentLog } from '../../actors/runtime/log.js';
import { createLink, EventLink, ParkedLink } from '../../actors/runtime/mailbox.js';
import { generation } from '../helpers/engine/generation.js';
import { eventually } from '../helpers/eventually.js';

type FromFront = Submit | Abort | TokenizerCall;
type ToFront = Encoded | Deltas | Failed | CallReply;

const opened: { close(): void; behind?(): number }[] = [];
afterEach(() => {
  for (const link of opened.splice(0)) link.close();
});

/** A tokenizer's end of a link, driven by the test. */
class FakeTokenizer {
  readonly got: FromFront[] = [];
  readonly link: EventLink<FromFront, ToFront>;
  readonly #counters = createCounters(TOKENIZER_COUNTER.cells);

  constructor(client: ActorClient, index: number) {
    const [front, own] = createLink(null, null);
    this.link = new EventLink<FromFront, ToFront>(own, (message) => this.got.push(message));
    opened.push(this.link);
    client.attachTokenizer(index, front, this.#counters);
  }

  get submits(): Submit[] {
    return this.got.filter((m) => m.k === 'submit');
  }
  get aborted(): RequestId[] {
    return this.got.flatMap((m) => (m.k === 'abort' ? m.ids : []));
  }
  /** As a tokenizer does when a prompt, or the ids of a call, are not held any more. */
  letGo({ size }: Submit | TokenizerCall): void {
    this.#counters[TOKENIZER_COUNTER.letGo] = (this.#counters[TOKENIZER_COUNTER.letGo] ?? 0) + size;
  }
  encoded(id: RequestId): void {
    for (const submitted of this.submits) if (submitted.id === id) this.letGo(submitted);
    this.link.post({ k: 'encoded', id, promptIds: bytesOf(Int32Array.from([1, 2, 3])), maxTokens: 8 });
  }
  delta(id: RequestId, index: number, finish: boolean): void {
    const end = finish ? { finish: 'stop' as const } : {};
    this.link.post({
      k: 'deltas',
      deltas: [{ id, index, text: 'x', tokens: [5], ...end }],
      started: [{ id, queueMs: 1, cachedTokens: 0 }],
    });
  }
}

class Recorder implements RequestSink {
  readonly calls: string[] = [];
  readonly ends: (Failure | null)[] = [];
  readonly #log = (name: string) => {
    assert.equal(this.ends.length, 0, `${name} after the end`);
    this.calls.push(name);
  };
  onEncoded(): void {
    this.#log('encoded');
  }
  onNotice(): void {
    this.#log('notice');
  }
  onStarted(): void {
    this.#log('started');
  }
  onPromptLogprobs(): void {
    this.#log('prompt');
  }
  onDeltas(): void {
    this.#log('deltas');
  }
  onEnd(failure: Failure | null): void {
    this.#log('end');
    this.ends.push(failure);
  }
}

function openClient(maxUnfinished = 100, maxHeldSize = 2 ** 24): ActorClient {
  const client = new ActorClient({ ids: new RequestIds(), maxUnfinished, maxHeldSize, hangTimeoutMs: 60_000, log: silentLog });
  client.setState('ready');
  opened.push({ close: () => client.close({ kind: 'shutting_down' }) });
  return client;
}

function submit(client: ActorClient, options: Parameters<typeof generation>[0] = {}): { sink: Recorder; handle: RequestHandle } {
  const sink = new Recorder();
  return { sink, handle: client.submit({ kind: 'ids', ids: [1] }, generation(options), sink) };
}

/** Lets posted messages arrive: those to the client are awaited, those from it get some time. */
async function settle(): Promise<void> {
  await sleep(15);
  for (let i = 0; i < 2000 && opened.some((link) => (link.behind?.() ?? 0) > 0); i++) await sleep(1);
}

async function until(done: () => boolean): Promise<void> {
  for (let i = 0; i < 2000 && !done(); i++) await sleep(1);
  assert.ok(done(), 'it did not happen');
}

test('a request runs from encoding to its end, in order', async () => {
  const client = openClient();
  const tokenizer = new FakeTokenizer(client, 0);
  const { sink, handle } = submit(client);
  assert.equal(client.requests()[0]?.state, 'encoding');
  tokenizer.encoded(handle.id);
  await settle();
  assert.equal(client.requests()[0]?.state, 'queued');
  tokenizer.delta(handle.id, 0, false);
  await settle();
  assert.deepEqual(
    { ...client.requests()[0], ageMs: 0 },
    { id: handle.id, state: 'running', group: 0, ageMs: 0, promptTokens: 3, generatedTokens: 1 },
  );
  tokenizer.delta(handle.id, 0, true);
  await settle();
  assert.deepEqual(sink.calls, ['encoded', 'started', 'deltas', 'deltas', 'end']);
  assert.deepEqual(sink.ends, [null]);
  assert.deepEqual(client.requests(), []);
});

test('a request of several sequences ends with the last of them', async () => {
  const client = openClient();
  const tokenizer = new FakeTokenizer(client, 0);
  const { sink, handle } = submit(client, { n: 2, bestOf: 3 });
  for (const index of [2, 0]) tokenizer.delta(handle.id, index, true);
  await settle();
  assert.deepEqual(sink.ends, []);
  tokenizer.delta(handle.id, 1, true);
  await settle();
  assert.deepEqual(sink.ends, [null]);
});

test('cancel ends a request before it returns, tells the tokenizer, and nothing comes after', async () => {
  const client = openClient();
  const tokenizer = new FakeTokenizer(client, 0);
  const { sink, handle } = submit(client);
  tokenizer.encoded(handle.id);
  tokenizer.delta(handle.id, 0, true);
  handle.cancel();
  assert.deepEqual(sink.ends, [{ kind: 'cancelled' }]);
  handle.cancel();
  await settle();
  await until(() => tokenizer.aborted.length > 0);
  assert.deepEqual(tokenizer.aborted, [handle.id]);
  assert.deepEqual(sink.calls, ['end']);
});

test('each state of the engine refuses with its own error, or lets requests wait', async () => {
  const client = openClient();
  const expected = { starting: 'model_loading', draining: 'shutting_down', stopped: 'shutting_down', failed: 'engine_failure' } as const;
  for (const [state, kind] of Object.entries(expected)) {
    client.setState(state as keyof typeof expected);
    assert.equal(submit(client).sink.ends[0]?.kind, kind);
  }
  client.setState('restarting');
  const { sink, handle } = submit(client);
  assert.deepEqual(sink.ends, []);
  const tokenizer = new FakeTokenizer(client, 0);
  await until(() => tokenizer.submits.length > 0);
  assert.equal(tokenizer.submits[0]?.id, handle.id);
});

test('one unfinished request more than allowed is refused as overloaded, and an end makes room', async () => {
  const client = openClient(2);
  const tokenizer = new FakeTokenizer(client, 0);
  const first = submit(client);
  submit(client);
  assert.equal(submit(client).sink.ends[0]?.kind, 'overloaded');
  tokenizer.delta(first.handle.id, 0, true);
  await settle();
  assert.deepEqual(submit(client).sink.ends, []);
});

test('requests spread over the tokenizers, and only those of a dead one end', async () => {
  const client = openClient();
  const tokenizers = [new FakeTokenizer(client, 0), new FakeTokenizer(client, 1)];
  const all = Array.from({ length: 20 }, () => submit(client));
  const [a, b] = tokenizers;
  assert.ok(a && b);
  await until(() => a.submits.length + b.submits.length === all.length);
  assert.ok(a.submits.length > 3 && b.submits.length > 3);
  client.detachTokenizer(0);
  const lost = new Set(a.submits.map((s) => s.id));
  for (const { sink, handle } of all) {
    assert.equal(sink.ends.length, lost.has(handle.id) ? 1 : 0);
    if (lost.has(handle.id)) assert.deepEqual([sink.ends[0]?.kind, sink.ends[0]?.data], ['engine_failure', { retriable: true }]);
  }
  const late = submit(client);
  await until(() => b.submits.some((s) => s.id === late.handle.id));
});

test('a prompt that takes long to encode holds up no others while a tokenizer is free', async () => {
  const client = openClient();
  const tokenizers = [new FakeTokenizer(client, 0), new FakeTokenizer(client, 1)];
  submit(client);
  await until(() => tokenizers.some((t) => t.submits.length > 0));
  const [stuck, free] = tokenizers[0]!.submits.length > 0 ? tokenizers : tokenizers.toReversed(); // two, as made above
  for (let i = 0; i < 10; i++) {
    const { handle } = submit(client);
    await until(() => free!.submits.some((m) => m.id === handle.id));
    free!.encoded(handle.id);
    await until(() => client.requests().every((r) => r.id !== handle.id || r.state === 'queued'));
  }
  assert.equal(stuck!.submits.length, 1);
});

test('a sink that throws harms no other request', async () => {
  const client = openClient();
  const tokenizer = new FakeTokenizer(client, 0);
  const good = submit(client);
  const bad = client.submit({ kind: 'ids', ids: [1] }, generation(), {
    ...new Recorder(),
    onEncoded() {},
    onNotice() {},
    onStarted() {},
    onPromptLogprobs() {},
    onDeltas() {
      throw new Error('bug');
    },
    onEnd() {
      throw new Error('bug');
    },
  });
  tokenizer.delta(bad.id, 0, true);
  tokenizer.delta(good.handle.id, 0, true);
  await settle();
  assert.deepEqual(good.sink.ends, [null]);
});

test('pauses reach the scheduler once each, and are told to a new scheduler again', async () => {
  const client = openClient();
  new FakeTokenizer(client, 0);
  const { handle } = submit(client);
  const connect = () => {
    const [front, own] = createLink(null, null);
    const got: (Flow | EngineCall)[] = [];
    const link = new EventLink<Flow | EngineCall, Notices | CallReply>(own, (m) => got.push(m));
    opened.push(link);
    client.attachScheduler(front, createCounters(SCHEDULER_COUNTER.cells));
    return got;
  };
  const first = connect();
  handle.setPaused(true);
  handle.setPaused(true);
  await until(() => first.length > 0);
  await settle();
  assert.deepEqual(first, [{ k: 'flow', id: handle.id, paused: true }]);
  client.detachScheduler();
  const second = connect();
  await until(() => second.length > 0);
  assert.deepEqual(second, [{ k: 'flow', id: handle.id, paused: true }]);
});

test('calls are answered, and end with an error when their actor dies', async () => {
  const client = openClient();
  await assert.rejects(client.encode({ kind: 'ids', ids: [] }), {
    failure: { kind: 'engine_failure', message: 'The engine restarts', data: { retriable: true } },
  });
  const tokenizer = new FakeTokenizer(client, 0);
  const encoded = client.encode({ kind: 'text', text: 'x', addSpecialTokens: false });
  const decoded = client.decode([1], true);
  await until(() => tokenizer.got.length === 2);
  for (const m of tokenizer.got) {
    if (m.k === 'encode') tokenizer.link.post({ k: 'reply', call: m.call, ok: true, value: bytesOf(Int32Array.from([7])) });
    if (m.k === 'decode') tokenizer.link.post({ k: 'reply', call: m.call, ok: false, failure: { kind: 'invalid_params', message: 'no' } });
  }
  assert.deepEqual(await encoded, Int32Array.from([7]));
  await assert.rejects(decoded, { message: 'no', failure: { kind: 'invalid_params', message: 'no' } });
  const lost = client.encode({ kind: 'ids', ids: [1] });
  client.detachTokenizer(0);
  await assert.rejects(lost, { name: 'InferdError' });
});

test('a control call is one question to the scheduler, answered by value or failure, and ends when the scheduler dies', async () => {
  const client = openClient();
  await assert.rejects(client.ask('stats', null), {
    failure: { kind: 'engine_failure', message: 'The engine restarts', data: { retriable: true } },
  });
  const [front, own] = createLink(null, null);
  const got: EngineCall[] = [];
  const link = new EventLink<Flow | EngineCall, Notices | CallReply>(own, (m) => void (m.k === 'ask' && got.push(m)));
  opened.push(link);
  client.attachScheduler(front, createCounters(SCHEDULER_COUNTER.cells));
  const asked = [client.ask('stats', null), client.ask('stats', null), client.ask('stats', null)];
  const ends = Promise.allSettled(asked);
  await until(() => got.length === 3);
  assert.deepEqual(
    got.map(({ name, params }) => ({ name, params })),
    new Array<unknown>(3).fill({ name: 'stats', params: null }),
  );
  link.post({ k: 'reply', call: got[1]?.call ?? 0, ok: true, value: { fake: true } });
  link.post({ k: 'reply', call: got[0]?.call ?? 0, ok: false, failure: { kind: 'unsupported', message: 'no' } });
  assert.deepEqual(await asked[1], { fake: true });
  await assert.rejects(asked[0] ?? Promise.resolve(), { failure: { kind: 'unsupported', message: 'no' } });
  client.detachScheduler();
  assert.equal((await ends)[2]?.status, 'rejected');
});

test('a call that is cancelled ends at once, and the tokenizer is told to drop it', async () => {
  const client = openClient();
  const tokenizer = new FakeTokenizer(client, 0);
  const cancellation = new Cancellation();
  const calls = [
    client.encode({ kind: 'text', text: 'x', addSpecialTokens: false }, { cancellation }),
    client.decode([1], true, { cancellation }),
  ];
  await until(() => tokenizer.got.length === 2);
  const numbers = tokenizer.got.flatMap((m) => (m.k === 'encode' || m.k === 'decode' ? [m.call] : []));
  cancellation.cancel();
  for (const call of calls) await assert.rejects(call, { failure: { kind: 'cancelled', message: 'Request cancelled' } });
  await until(() => tokenizer.aborted.length === 2);
  assert.deepEqual(tokenizer.aborted, numbers);
  await assert.rejects(client.decode([1], true, { cancellation }), { failure: { kind: 'cancelled', message: 'Request cancelled' } });
  const { handle } = submit(client);
  await until(() => tokenizer.submits.length === 1);
  assert.ok(!numbers.includes(handle.id), 'calls and requests are numbered together');
  assert.equal(tokenizer.got.filter((m) => m.k === 'decode').length, 1, 'what was cancelled before is not sent');
});

test('tokenizers tell clients apart by number, in requests and calls alike', async () => {
  const client = openClient();
  const tokenizer = new FakeTokenizer(client, 0);
  const [one, other] = [{}, {}];
  const prompt = { kind: 'ids', ids: [1] } as const;
  const sink = new Recorder();
  client.submit(prompt, generation(), sink, one);
  client.submit(prompt, generation(), sink, other);
  client.encode(prompt, { client: one }).catch(() => {});
  client.decode([1], true, { client: other }).catch(() => {});
  submit(client);
  client.decode([1], true).catch(() => {});
  await until(() => tokenizer.got.length === 6);
  const [a, b, aAgain, bAgain, nobody, nobodyAgain] = tokenizer.got.map((m) => (m.k === 'abort' ? -1 : m.client));
  assert.deepEqual([aAgain, bAgain, nobodyAgain], [a, b, nobody]);
  assert.equal(new Set([a, b, nobody]).size, 3);
});

test('what a tokenizer holds counts until it lets go of it, whoever has left, and too much is refused', async () => {
  const client = openClient(100, 1_000_000);
  const tokenizer = new FakeTokenizer(client, 0);
  const long = { kind: 'text', text: 'x'.repeat(400_000), addSpecialTokens: false } as const;
  const cancellation = new Cancellation();
  const left = [client.encode(long, { cancellation }), client.encode(long, { cancellation })];
  cancellation.cancel();
  for (const call of left) await assert.rejects(call);
  const refused = { kind: 'overloaded', message: 'Too much text waits to be encoded; try again later', data: { retry_after_ms: 1000 } };
  await assert.rejects(client.encode(long), { failure: refused });
  const sink = new Recorder();
  client.submit(long, generation(), sink);
  assert.deepEqual(sink.ends, [refused]);
  const small = submit(client);
  assert.deepEqual(small.sink.ends, [], 'there is room for short ones');
  await until(() => tokenizer.submits.length === 1);
  const [first] = tokenizer.got;
  assert.ok(first?.k === 'encode');
  tokenizer.letGo(first);
  const again = new Recorder();
  client.submit(long, generation(), again).cancel();
  assert.equal(again.ends[0]?.kind, 'cancelled');
  await assert.rejects(client.encode(long), { failure: refused }, 'a request that was cancelled is held until it is let go, too');
  client.detachTokenizer(0);
  const fresh = new FakeTokenizer(client, 0);
  const taken = client.encode(long);
  taken.catch(() => {});
  await until(() => fresh.got.length === 1);
});

test('it is healthy only while the scheduler ticks and its steps complete', () => {
  const client = openClient();
  assert.equal(client.healthy(), false);
  const counters = createCounters(SCHEDULER_COUNTER.cells);
  const [front, own] = createLink(null, null);
  opened.push(new EventLink(own, () => {}));
  client.attachScheduler(front, counters);
  counters[SCHEDULER_COUNTER.heartbeatMs] = nowMs();
  assert.equal(client.healthy(), true);
  counters[SCHEDULER_COUNTER.inFlightSinceMs] = nowMs() - 120_000;
  assert.equal(client.healthy(), false);
  counters[SCHEDULER_COUNTER.inFlightSinceMs] = 0;
  counters[SCHEDULER_COUNTER.heartbeatMs] = nowMs() - 60_000;
  assert.equal(client.healthy(), false);
});

test('every request gets exactly one end, in any interleaving of cancels, answers, deaths, restarts, drain and stop', async () => {
  const event = fc.oneof(
    { weight: 5, arbitrary: fc.constant({ do: 'submit' as const, at: 0 }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('cancel' as const), at: fc.nat(20) }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('finish' as const), at: fc.nat(20) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('fail' as const), at: fc.nat(20) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('kill' as const, 'revive' as const), at: fc.nat(1) }) },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constantFrom('restarting' as const, 'ready' as const, 'draining' as const), at: fc.constant(0) }),
    },
    { weight: 4, arbitrary: fc.constant({ do: 'turn' as const, at: 0 }) },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 60 }), async (events) => {
      const client = openClient(10);
      const tokenizers: (FakeTokenizer | null)[] = [new FakeTokenizer(client, 0), new FakeTokenizer(client, 1)];
      const all: { sink: Recorder; handle: RequestHandle }[] = [];
      for (const e of events) {
        const request = all[e.at % Math.max(1, all.length)];
        if (e.do === 'submit') all.push(submit(client));
        else if (e.do === 'cancel') request?.handle.cancel();
        else if (e.do === 'finish') for (const t of tokenizers) if (request) t?.delta(request.handle.id, 0, true);
        if (e.do === 'fail' && request)
          for (const t of tokenizers) t?.link.post({ k: 'failed', id: request.handle.id, failure: { kind: 'internal' } });
        if (e.do === 'kill' && tokenizers[e.at]) {
          tokenizers[e.at] = null;
          client.detachTokenizer(e.at);
        }
        if (e.do === 'revive' && !tokenizers[e.at]) tokenizers[e.at] = new FakeTokenizer(client, e.at);
        if (e.do === 'restarting' || e.do === 'ready' || e.do === 'draining') client.setState(e.do);
        if (e.do === 'turn') await new Promise((resolve) => setImmediate(resolve));
        assert.ok(client.requests().length <= 10);
      }
      const idle = client.idle();
      client.close({ kind: 'shutting_down' });
      await idle;
      for (const { sink } of all) assert.equal(sink.ends.length, 1);
      for (const t of tokenizers) t?.link.close();
    }),
    { numRuns: 60 },
  );
});

test('what tokenizers tell of token ids is known before the records that name them, and stays', async () => {
  const client = openClient();
  client.setState('ready');
  const tokenizers = [new FakeTokenizer(client, 0), new FakeTokenizer(client, 1)];
  const seen: unknown[] = [];
  const recorder = new Recorder();
  const sink: RequestSink = Object.assign(Object.create(recorder) as RequestSink, {
    onEncoded() {},
    onStarted() {},
    onNotice() {},
    onPromptLogprobs: (records: Int32Array) => seen.push([...records], client.tokenText(5).token),
    onDeltas: (deltas: Deltas['deltas']) => seen.push(client.tokenText(6).bytes, deltas[0]?.logprobs?.length),
    onEnd() {},
  });
  const { id } = client.submit({ kind: 'ids', ids: [1] }, generation(), sink);
  await eventually('the request is sent', () => tokenizers.some(({ submits }) => submits.length > 0));
  const owner = tokenizers.find(({ submits }) => submits.length > 0);
  owner?.encoded(id);
  owner?.link.post({
    k: 'deltas',
    deltas: [{ id, index: 0, text: 'é', tokens: [6], logprobs: bytesOf(Int32Array.of(6, 0, 1, 0)), finish: 'stop' }],
    prompt: [{ id, first: 1, logprobs: bytesOf(Int32Array.of(5, 0, 1, 0)) }],
    names: { ids: [5, 6], texts: [' a', Uint8Array.of(0xc3)] },
  });
  await eventually('the request ends', () => client.requests().length === 0);
  assert.deepEqual(seen, [[5, 0, 1, 0], ' a', [0xc3], 16]);
  assert.deepEqual([client.tokenText(6).token, client.tokenText(5).bytes], ['\ufffd', [32, 97]]);
  assert.equal(client.tokenText(7).token, '', 'nobody told');
});

test('a group without a step in flight is woken while the prompt is encoded, if it looks for what it is woken for', () => {
  const rings = (spins: boolean, inFlightSinceMs: number): number => {
    const client = openClient();
    new FakeTokenizer(client, 0);
    const bell = createDoorbell();
    const [end, own] = createLink(null, bell);
    opened.push(new ParkedLink<Flow | EngineCall, Notices | CallReply>(own));
    const counters = createCounters(SCHEDULER_COUNTER.cells);
    counters[SCHEDULER_COUNTER.inFlightSinceMs] = inFlightSinceMs;
    client.attachScheduler(end, counters, 0, spins);
    const heard = listen(bell);
    submit(client);
    return listen(bell) - heard;
  };
  assert.deepEqual([rings(true, 0), rings(true, nowMs()), rings(false, 0)], [1, 0, 0]);
});
