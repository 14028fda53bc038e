/** Looking into the daemon: stats with details, the map of the KV pool, requests that run and that have ended. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KvMap } from '../../../actors/messages/kv-map.js';
import type { Timeline } from '../../../actors/messages/timeline.js';
import { allScopes, type Scopes } from '../../../rpc/scope.js';
import { call, connectPeer as connect, setup } from '../harness.js';

type Row = Record<string, unknown>;
const result = (frames: readonly unknown[]): Row => (frames.at(-1) as { readonly result: Row }).result;
const chat = (id: number, extra: object = {}) =>
  call(id, 'chat.completions.create', { messages: [{ role: 'user', content: 'a b c' }], ...extra });
const lookers: Scopes = new Set(['infer', 'metrics'] as const);

const timeline: Timeline = {
  arrivalMs: 1000,
  promptTokens: 5,
  generatedTokens: 3,
  marks: [
    { kind: 'queued', ms: 1000.5 },
    { kind: 'started', ms: 1001, cachedTokens: 0 },
    { kind: 'prefill', ms: 1001, untilMs: 1002.25, sequence: 0, from: 0, to: 5 },
    { kind: 'ended', ms: 1010, how: 'finished' },
  ],
  leftOut: 0,
};

test('details of stats come when they are asked for, each step once to each subscription', async () => {
  const { engine, server } = setup();
  const since: (readonly number[])[] = [];
  engine.answers = {
    ...engine.answers,
    steps: () => ({ seconds: { edges: [1], counts: [2, 0], sum: 1 }, tokens: { edges: [1], counts: [2, 0], sum: 2 } }),
    recent: (params) => {
      since.push(params.since);
      return {
        next: [(params.since[0] ?? 0) + 2],
        atMs: [10, 20],
        execUs: [1500, 2500],
        promptTokens: [4, 0],
        decodeTokens: [0, 1],
        running: [1, 1],
      };
    },
  };
  const peer = connect(server, { scopes: lookers });
  peer.say(call(1, 'stats.get'));
  assert.equal(result(await peer.hear())['detail'], undefined);
  peer.say(call(2, 'stats.get', { detail: true }));
  const detail = result(await peer.hear())['detail'] as Row;
  assert.deepEqual(detail['steps'], {
    at_ms: [10, 20],
    exec_ms: [1.5, 2.5],
    prompt_tokens: [4, 0],
    decode_tokens: [0, 1],
    running: [1, 1],
  });
  assert.equal(detail['first_token_seconds'], null);
  assert.deepEqual((detail['models'] as Row[])[0]?.['kv_bytes'], 64 * 1024);
  since.length = 0;
  peer.say(call(3, 'stats.subscribe', { detail: true, interval_ms: 100 }));
  while (since.length < 3) await peer.hear();
  assert.deepEqual(since.slice(0, 3), [[], [2], [4]]);
  peer.say(call(4, 'stats.get', { model: 'nobody' }));
  assert.match(JSON.stringify(await peer.hear()), /-32002/);
  peer.connection.close();
});

test('the map of the KV pool names requests to those who may see them only', async () => {
  const { engine, server } = setup({ auto: false });
  const owner = connect(server, { scopes: lookers });
  owner.say(chat(1));
  await owner.hear();
  const map: KvMap = {
    totalBlocks: 4,
    blocksPerCell: 1,
    cells: Uint8Array.of(0, 1, 3, 3),
    owners: [{ id: engine.live[0]!.id, blocks: 2 }],
  };
  engine.answers = { ...engine.answers, kvMap: ({ maxCells }) => (maxCells === 9 ? map : assert.fail()) };
  const ask = async (scopes: Scopes): Promise<Row> => {
    const peer = connect(server, { scopes });
    peer.say(call(1, 'kv.map', { cells: 9 }));
    return result(await peer.hear());
  };
  owner.say(call(2, 'kv.map', { cells: 9 }));
  const own = result(await owner.hear());
  assert.equal(own['cells'], 'AAEDAw==');
  assert.match(JSON.stringify(own['owners']), /chatcmpl-.*"blocks":2/);
  assert.deepEqual((await ask(lookers))['owners'], [{ request_id: null, blocks: 2 }]);
  assert.deepEqual((await ask(allScopes))['owners'], own['owners']);
});

test('a request can be looked at while it runs and after, by its own client and by who administers', async () => {
  const { engine, server } = setup({ auto: false });
  const asked: number[] = [];
  engine.answers = {
    ...engine.answers,
    timeline: ({ id }) => {
      asked.push(id);
      return timeline;
    },
  };
  const owner = connect(server, { scopes: lookers });
  owner.say(chat(1));
  await owner.hear();
  owner.say(call(2, 'requests.list', { ended: true }));
  const { requests, ended } = result(await owner.hear()) as { requests: Row[]; ended: Row[] };
  const id = String(requests[0]?.['request_id']);
  assert.deepEqual(ended, []);
  owner.say(call(3, 'requests.get', { request_id: id }));
  const running = result(await owner.hear())['request'] as Row;
  assert.deepEqual([running['state'], asked.length], ['running', 1]);
  while (engine.live.length > 0) engine.step();
  await owner.hear();
  owner.say(call(4, 'requests.get', { request_id: id }));
  const over = result(await owner.hear())['request'] as { state: string; model: string; prompts: { marks: Row[] }[] };
  assert.deepEqual([over.state, over.model], ['finished', 'fake']);
  assert.deepEqual(over.prompts[0]?.marks[2], { kind: 'prefill', at_ms: 1, until_ms: 2.25, sequence: 0, from: 0, to: 5 });
  const stranger = connect(server, { scopes: lookers });
  stranger.say(call(1, 'requests.get', { request_id: id }));
  assert.deepEqual(result(await stranger.hear()), { request: null });
  stranger.say(call(2, 'requests.list', { ended: true }));
  assert.deepEqual(result(await stranger.hear())['ended'], []);
  const admin = connect(server, { scopes: allScopes });
  admin.say(call(1, 'requests.list', { ended: true }));
  const [row] = result(await admin.hear())['ended'] as Row[];
  assert.deepEqual([row?.['request_id'], row?.['state'], row?.['model']], [id, 'finished', 'fake']);
});

test('how a request ended is remembered, of so many of them', async () => {
  const { engine, server } = setup({ auto: false, config: { scheduler: { kept_timelines: 2 } } });
  const peer = connect(server, { scopes: allScopes });
  for (const id of [1, 2, 3]) {
    peer.say(chat(id));
    await peer.hear();
    if (id === 1) while (engine.live.length > 0) engine.step();
    else if (id === 2) peer.say({ jsonrpc: '2.0', method: '$/cancelRequest', params: { id } });
    else engine.live[0]?.sink.onEnd({ kind: 'engine_failure' });
    await peer.hear();
  }
  peer.say(call(9, 'requests.list', { ended: true }));
  const ended = result(await peer.hear())['ended'] as Row[];
  assert.deepEqual(
    ended.map((row) => row['state']),
    ['failed', 'cancelled'],
  );
});

test('an engine that has forgotten a request, or is gone, leaves the rest of the answer as it is', async () => {
  const { engine, server } = setup();
  const peer = connect(server, { scopes: allScopes });
  engine.answers = { ...engine.answers, timeline: () => null };
  peer.say(chat(1));
  const id = String(result(await peer.hear())['id']);
  peer.say(call(2, 'requests.get', { request_id: id }));
  assert.deepEqual((result(await peer.hear())['request'] as Row)['prompts'], []);
});
