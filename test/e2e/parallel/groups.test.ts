/**
 * A daemon whose model is served by two engine groups, on the CPU: the answers of one group, conversations that stay where their beginning
 * is, one limit for all who wait, and one group that fails while the other goes on.
 */
import assert from 'node:assert/strict';
import { after, before, describe, type TestContext, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { eventually } from '../../helpers/eventually.js';
import { scrape } from '../../helpers/wire/exposition.js';
import { addUp, type RpcSocket } from '../../helpers/wire/rpc-socket.js';
import { story } from '../story.js';

const two = 'parallel.data_parallel_size=2';
const indices = Array.from({ length: 8 }, (_, i) => i);

async function started(t: TestContext, sets: readonly string[]): Promise<TestDaemon> {
  const at = await startTestDaemon(sets);
  t.after(() => at.close());
  return at;
}

interface GroupRow {
  readonly engine: number;
  readonly requests: { readonly running: number; readonly waiting: number; readonly finished_total: number };
  readonly tokens: { readonly prompt_total: number; readonly prefix_hit_total: number };
  readonly kv: { readonly total_blocks: number };
}

const groupsOf = async (at: TestDaemon): Promise<readonly GroupRow[]> =>
  ((await at.stats()) as unknown as { groups: readonly GroupRow[] }).groups;

const tokensOf = async (socket: RpcSocket, asked: readonly object[]): Promise<unknown[]> =>
  (await Promise.all(asked.map((one) => socket.call('chat.completions.create', { ...one, return_token_ids: true })))).map(({ choices }) =>
    choices?.map((choice) => choice.token_ids),
  );

describe('two groups', () => {
  let at: TestDaemon;
  before(async () => {
    at = await startTestDaemon([two, 'inference.num_tokenizer_workers=2']);
  });
  after(() => at.close());

  test('give the answers of one: greedy, drawn, several of one prompt', async (t) => {
    const one = await started(t, []);
    const asked = [...indices.map((i) => ({ ...story(i, 40), temperature: 0 })), ...indices.map((i) => ({ ...story(i, 40), n: 2 }))];
    assert.deepEqual(await tokensOf(await at.open(), asked), await tokensOf(await one.open(), asked));
    const rows = await groupsOf(at);
    assert.deepEqual(
      rows.map(({ engine }) => engine),
      [0, 1],
    );
    // Groups that have as much to do take turns, and the first prompts share no block: neither group can be passed over until it has had one.
    // How many it gets depends on when it gets a core.
    assert.ok(
      rows.every(({ requests }) => requests.finished_total > 0),
      JSON.stringify(rows),
    );
    await at.untilFreed();
  });

  test('are shown one by one and in sums', async () => {
    const [all, rows] = [await at.stats(), await groupsOf(at)];
    assert.equal(
      all.kv?.total_blocks,
      rows.reduce((sum, { kv }) => sum + kv.total_blocks, 0),
    );
    const figures = await scrape(at.http);
    const told = ['0', '1'].map((engine) => figures.value('vllm:generation_tokens_total', { engine }));
    assert.ok(told.every((tokens) => tokens > 0));
    assert.equal(
      told.reduce((a, b) => a + b, 0),
      (all as unknown as { tokens: { generated_total: number } }).tokens.generated_total,
    );
    const socket = await at.open();
    const { data } = (await socket.call('models.list')) as { data?: readonly Record<string, unknown>[] };
    assert.match(`${data?.[0]?.['backend']}`, /^2 groups of cpu .* x1$/);
    const map = await socket.call('kv.map', { cells: 64 });
    assert.equal((map as unknown as { total_blocks: number }).total_blocks, all.kv?.total_blocks);
    const ids = indices.map((i) => socket.send('chat.completions.create', { ...story(i, 900), stream: true }));
    for (const id of ids) await socket.event(id, 'delta');
    const { requests } = (await socket.call('requests.list')) as unknown as { requests: readonly { engine?: number }[] };
    assert.deepEqual([...new Set(requests.map(({ engine }) => engine))].sort(), [0, 1]);
    for (const id of ids) socket.notify('$/cancelRequest', { id });
    for (const id of ids) assert.equal((await socket.reply(id)).error?.code, -32800);
    await at.untilFreed();
  });

  test('share the work: while one of them has a request, those that come one by one go to the other', async () => {
    const socket = await at.open();
    const finished = (rows: readonly GroupRow[]): number[] => rows.map(({ requests }) => requests.finished_total);
    const long = socket.send('chat.completions.create', { ...story(100, 4000), stream: true });
    await socket.event(long, 'delta'); // so its group has told of it
    const before = await groupsOf(at);
    const busy = before.findIndex(({ requests }) => requests.running === 1);
    for (let i = 1; i <= 4; i++) {
      await socket.call('chat.completions.create', story(100 + i, 1));
      await eventually('the other has nothing to do', async () => (await groupsOf(at))[1 - busy]?.requests.running === 0);
    }
    const expected = finished(before).map((count, group) => count + (group === busy ? 0 : 4));
    assert.deepEqual(finished(await groupsOf(at)), expected);
    socket.notify('$/cancelRequest', { id: long });
    assert.equal((await socket.reply(long)).error?.code, -32800);
    await at.untilFreed();
  });

  test('are recorded each with its own steps', async () => {
    const socket = await at.open();
    await socket.call('profile.start');
    await tokensOf(
      socket,
      indices.map((i) => story(i, 20)),
    );
    const written = (await socket.call('profile.stop')) as unknown as {
      files: readonly string[];
      summary: readonly { events: { scheduler: number; executor: number } }[];
    };
    assert.deepEqual(
      written.files.map((file) => /dp(\d)_tp0/.exec(file)?.[1]),
      ['0', '1'],
    );
    for (const { events } of written.summary) assert.ok(events.scheduler > 0 && events.executor > 0);
  });
});

test('groups of two ranks give the answers of one whole model, also when a rank fails', async (t) => {
  const one = await started(t, []);
  const at = await started(t, [two, 'parallel.tensor_parallel_size=2', 'inference.threads=4', 'parallel.comm_timeout_ms=1000']);
  const asked = indices.map((i) => story(i, 80));
  const expected = await tokensOf(await one.open(), asked);
  const socket = await at.open();
  assert.deepEqual(await tokensOf(socket, asked), expected);
  const { data } = (await socket.call('models.list')) as { data?: readonly Record<string, unknown>[] };
  assert.match(`${data?.[0]?.['backend']}`, /^2 groups of 2 ranks of cpu .* x1$/);
  const ids = asked.map((one) => socket.send('chat.completions.create', { ...one, stream: true }));
  for (const id of ids) await socket.event(id, 'delta');
  at.mayFail();
  at.daemon.engine.killActor('executor', 3);
  for (const [i, id] of ids.entries()) {
    assert.equal((await socket.reply(id)).error, undefined, `request ${i}`);
    assert.deepEqual([addUp(socket.events(id), 1).tokenIds[0]], expected[i]);
  }
  await at.untilFreed();
});

test('as many requests are taken as may wait and run in both, and each of the others is refused', async (t) => {
  const at = await started(t, [two, 'scheduler.max_num_sequences=3', 'scheduler.max_num_batched_tokens=64', 'scheduler.max_queue=5']);
  const sockets = await Promise.all([1, 2, 3].map(() => at.open()));
  const limit = 5 + 2 * 3;
  for (let round = 0; round < 3; round++) {
    const sent = sockets.flatMap((socket) => indices.map((i) => ({ socket, id: socket.send('chat.completions.create', story(i, 150)) })));
    const replies = await Promise.all(sent.map(({ socket, id }) => socket.reply(id)));
    const refused = replies.filter(({ error }) => error?.code === -32005);
    assert.equal(refused.length, sent.length - limit, JSON.stringify(replies.map(({ error }) => error?.code)));
    assert.equal(replies.filter(({ error }) => error === undefined).length, limit);
    await at.untilFreed();
  }
  // Sequences of one request take slots of their own: two requests run here, and five wait, or more that came while slots were free.
  const wide = sockets.flatMap((socket) =>
    indices.map((i) => ({ socket, id: socket.send('chat.completions.create', { ...story(i, 60), n: 3 }) })),
  );
  const replies = await Promise.all(wide.map(({ socket, id }) => socket.reply(id)));
  const taken = replies.filter(({ error }) => error === undefined).length;
  assert.ok(taken >= 2 + 5 && taken <= limit, `${taken}`);
  assert.ok(replies.every(({ error }) => error === undefined || error.code === -32005));
  await at.untilFreed();
});

describe('a group that fails', () => {
  for (const kind of ['scheduler', 'executor'] as const) {
    test(`is not noticed by the other, whose requests go on; all get one answer: ${kind}`, async (t) => {
      const at = await started(t, [two, 'scheduler.max_num_sequences=4', 'inference.num_tokenizer_workers=2']);
      const socket = await at.open();
      const many = Array.from({ length: 16 }, (_, i) => i);
      const expected = await tokensOf(
        socket,
        many.map((i) => story(i, 300)),
      );
      const ids = many.map((i) => socket.send('chat.completions.create', { ...story(i, 300), stream: true }));
      // Four run in each group, the others wait.
      await eventually('both are busy', async () =>
        (await groupsOf(at)).every(({ requests }) => requests.running === 4 && requests.waiting > 0),
      );
      const { requests } = (await socket.call('requests.list')) as unknown as { requests: readonly { engine?: number; state: string }[] };
      const other = requests.filter(({ engine, state }) => engine === 0 && state === 'running').length;
      const finished = (await groupsOf(at))[0]?.requests.finished_total ?? 0;
      at.mayFail();
      at.daemon.engine.killActor(kind, 1);
      await eventually('it is away', async () => (await groupsOf(at)).length === 1);
      for (const path of ['/health', '/ready']) assert.equal((await fetch(at.http + path)).status, 200, `${path}: the other serves`);
      const during = await socket.call('chat.completions.create', story(99, 5));
      assert.equal(during.usage?.completion_tokens, 5);
      for (const [i, id] of ids.entries()) {
        const { error } = await socket.reply(id);
        assert.equal(error, undefined, `request ${i}`);
        assert.deepEqual([addUp(socket.events(id), 1).tokenIds[0]], expected[i], `request ${i} went on with other tokens`);
      }
      assert.equal(socket.log.filter((m) => m.id !== undefined && ids.includes(m.id as number)).length, ids.length, 'one answer each');
      await eventually('it is there again', async () => (await groupsOf(at)).length === 2);
      const rows = await groupsOf(at);
      assert.ok((rows[0]?.requests.finished_total ?? 0) >= finished + other, 'the other group lost nothing');
      await at.untilFreed();
    });
  }
});
