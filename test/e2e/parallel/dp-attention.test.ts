/**
 * A daemon whose groups attend to requests of their own and share the experts of the model, on the CPU: the answers of one group, idle groups
 * that stay in step, and one end for all groups whatever becomes of one of them.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { readDaemonFile } from '../../../config/paths.js';
import { privateEnv, startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { moeModelSets } from '../../helpers/daemon/moe-model.js';
import { faultyRankModule, type RankFault } from '../../helpers/engine/faulty-rank.js';
import { eventually, inTime } from '../../helpers/eventually.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { assertOneEndEach } from '../../helpers/wire/one-end.js';
import { addUp, RpcSocket } from '../../helpers/wire/rpc-socket.js';
import { story } from '../story.js';

const COMM_TIMEOUT_MS = 3000;
const joined = (groups: number): string[] => [
  ...moeModelSets(),
  'parallel.enable_dp_attention=true',
  'parallel.expert_parallel=true',
  `parallel.data_parallel_size=${groups}`,
  `parallel.comm_timeout_ms=${COMM_TIMEOUT_MS}`,
];
const indices = Array.from({ length: 8 }, (_, i) => i);

/** Ends with the test, however that ends. */
async function started(t: TestContext, sets: readonly string[], module?: string): Promise<TestDaemon> {
  const at = await startTestDaemon(sets, module);
  t.after(() => at.close());
  return at;
}

/** Forty of many kinds: greedy, drawn, several of one prompt, under a grammar, long prompts in chunks, beginnings in common. */
const mixed = Array.from({ length: 40 }, (_, i) => {
  const one = story(i, 8 + (i % 5) * 6);
  const said = i % 8 === 3 ? 'On and on the foxes ran, until they came to the sea. '.repeat(20 + i) : '';
  return {
    ...one,
    messages: [{ role: 'user', content: said + one.messages[0]?.content }],
    ...[
      { temperature: 0 },
      {},
      { n: 2 },
      { top_p: 0.9, presence_penalty: 0.4 },
      { guided_regex: '[a-z]{3,9}( [a-z]{1,7}){2}', ignore_eos: false },
    ][i % 5],
  };
});

async function tokensOf(at: TestDaemon, asked: readonly object[]): Promise<unknown[]> {
  const socket = await at.open();
  const answers = await Promise.all(asked.map((one) => socket.call('chat.completions.create', { ...one, return_token_ids: true })));
  await socket.close();
  return answers.map(({ choices }) => choices?.map((choice) => choice.token_ids));
}

interface GroupRow {
  readonly engine: number;
  readonly requests: { readonly running: number; readonly finished_total: number };
  readonly kv: { readonly total_blocks: number };
}

const groupsOf = async (at: TestDaemon): Promise<readonly GroupRow[]> =>
  ((await at.stats()) as unknown as { groups: readonly GroupRow[] }).groups;

describe('groups that share experts', () => {
  test('give the answers of one group that has them all, each group some of them', async (t) => {
    const chunks = ['scheduler.max_num_batched_tokens=128'];
    const expected = await tokensOf(await started(t, [...moeModelSets(), ...chunks]), mixed);
    for (const groups of [2, 3]) {
      const at = await started(t, [...joined(groups), ...chunks, 'inference.num_tokenizer_workers=2']);
      assert.deepEqual(await tokensOf(at, mixed), expected, `${groups} groups`);
      const rows = await groupsOf(at);
      assert.deepEqual(
        rows.map(({ engine }) => engine),
        Array.from({ length: groups }, (_, i) => i),
      );
      assert.ok(
        rows.every(({ requests }) => requests.finished_total >= 4),
        JSON.stringify(rows),
      );
      await at.untilFreed();
    }
  });

  test('give them under drafts, swapped, and one after the other too', async (t) => {
    const crowded = ['cache.num_gpu_blocks_override=40', 'scheduler.max_model_len=512', 'scheduler.preemption_mode=swap'];
    const sets = [...crowded, 'cache.swap_space_bytes=67108864'];
    const asked = indices.map((i) => story(i, 100));
    const whole = await started(t, [...moeModelSets(), ...sets]);
    const expected = await tokensOf(whole, asked);
    const at = await started(t, [...joined(2), ...sets, 'speculative.method=ngram']);
    assert.deepEqual(await tokensOf(at, asked), expected);
    // A network that drafts has experts too, all of them in each group.
    const drafter = moeModelSets()[0]?.replace('inference.model_name', 'speculative.model') ?? '';
    const drafted = await started(t, [...joined(2), ...sets, 'speculative.method=draft', drafter]);
    assert.deepEqual(await tokensOf(drafted, asked), expected);
    // One group has nothing to do all along, for longer than a rank waits for another.
    const until = performance.now() + 1.5 * COMM_TIMEOUT_MS;
    for (let i = 0; performance.now() < until; i = (i + 1) % asked.length)
      assert.deepEqual(await tokensOf(at, asked.slice(i, i + 1)), expected.slice(i, i + 1));
    await at.untilFreed();
  });

  test('stay in step when nobody asks anything for longer than one waits for another', async (t) => {
    const at = await started(t, [...joined(2), 'parallel.comm_timeout_ms=300']);
    const first = await tokensOf(at, [story(1, 10)]);
    for (let i = 0; i < 3; i++) {
      await new Promise((resolve) => setTimeout(resolve, 500));
      assert.deepEqual(await tokensOf(at, [story(1, 10)]), first);
    }
    assert.equal((await groupsOf(at)).length, 2);
  });

  test('are reported as groups of one model', async (t) => {
    const [whole, at] = [await started(t, moeModelSets()), await started(t, joined(2))];
    const told = async (of: TestDaemon) => {
      const socket = await of.open();
      const { data } = (await socket.call('models.list')) as { data?: readonly Record<string, unknown>[] };
      await socket.close();
      const { memory } = (await of.stats()) as { memory?: { weight_bytes: number } };
      return { model: data?.[0] ?? {}, weightBytes: memory?.weight_bytes ?? 0 };
    };
    const [one, two] = [await told(whole), await told(at)];
    assert.match(`${two.model['backend']}`, /^2 groups of cpu .* x1$/);
    assert.equal(two.model['parameters'], one.model['parameters']);
    const expertBytes = 3 * 8 * 3 * 64 * 32 * 4;
    assert.equal(two.weightBytes, 2 * one.weightBytes - expertBytes, 'the experts are there once');
    const rows = await groupsOf(at);
    assert.equal(
      (await at.stats()).kv?.total_blocks,
      rows.reduce((sum, { kv }) => sum + kv.total_blocks, 0),
    );
  });

  test('are refused for a model without experts, with the reason', async () => {
    const sets = ['parallel.enable_dp_attention=true', 'parallel.expert_parallel=true', 'parallel.data_parallel_size=2'];
    await assert.rejects(startTestDaemon(sets), /has no experts that ranks .* set parallel\.enable_dp_attention to false/);
  });
});

const many = Array.from({ length: 16 }, (_, i) => story(i, 60));

/**
 * Sends many requests, of which some wait, calls `strike` when some run in each group, and looks that each has one answer, with the tokens of
 * `expected`: one failure is one hit for all of them, whichever group they were in. Then all groups are there again.
 */
async function assertGoesOn(at: TestDaemon, expected: readonly unknown[], strike: () => void): Promise<void> {
  at.mayFail();
  const socket = await at.open();
  const ids = many.map((one) => socket.send('chat.completions.create', { ...one, stream: true }));
  for (const id of ids.slice(0, 4)) await socket.event(id, 'delta');
  strike();
  for (const [i, id] of ids.entries()) {
    assert.equal((await socket.reply(id)).error, undefined, `request ${i}`);
    assert.deepEqual([addUp(socket.events(id), 1).tokenIds[0]], expected[i], `request ${i} went on with other tokens`);
  }
  assert.equal(socket.log.filter((m) => m.id !== undefined && ids.includes(m.id as number)).length, ids.length, 'one answer each');
  await socket.close();
  await eventually('it is ready', async () => (await fetch(`${at.http}/ready`)).status === 200 && (await groupsOf(at)).length === 2);
  await at.untilFreed();
}

describe('an actor that fails under load ends all groups once, which start again; each request has one answer', () => {
  const few = 'scheduler.max_num_sequences=4';

  for (const kind of ['executor', 'scheduler'] as const) {
    test(`${kind} of either group, three times`, async (t) => {
      // As many restarts as a minute has, of one unit: were each group one, these would be twice too many.
      const at = await started(t, [...joined(2), few, 'inference.num_tokenizer_workers=2']);
      const expected = await tokensOf(at, many);
      for (const index of [0, 1, 0]) await assertGoesOn(at, expected, () => at.daemon.engine.killActor(kind, index));
      assert.deepEqual(await tokensOf(at, many), expected);
    });
  }

  for (const [where, how] of [
    ['step', 'throw'],
    ['step', 'exit'],
    ['op', 'throw'],
    ['op', 'sleep'],
  ] as const) {
    test(`rank 1: ${how} at ${where}`, async (t) => {
      const expected = await tokensOf(await started(t, moeModelSets()), many);
      const fault: RankFault = { rank: 1, where, how, ms: 2 * COMM_TIMEOUT_MS, once: join(tempFolder(), 'struck') };
      const at = await started(t, [...joined(2), few], faultyRankModule(fault));
      await assertGoesOn(at, expected, () => {});
      assert.ok(existsSync(fault.once), 'it happened');
      assert.deepEqual(await tokensOf(at, many), expected);
    });
  }

  test('also when a tokenizer came while only some groups were there', async (t) => {
    const once = join(tempFolder(), 'sleeps');
    writeFileSync(once, 'not in the first life');
    const slow = faultyRankModule({ rank: 1, where: 'allocate', how: 'sleep', ms: 4000, once });
    const at = await started(t, [...joined(2), few], slow);
    const expected = await tokensOf(at, many);
    const { engine } = at.daemon;
    rmSync(once);
    engine.killActor('executor', 1);
    const groupsThere = (): number => new Set(engine.recorders().map(({ group }) => group)).size;
    await eventually('the groups are over', () => groupsThere() === 0);
    await eventually('one is there again', () => groupsThere() === 1);
    engine.killActor('tokenizer', 0);
    const socket = await at.open();
    const tokenizes = async (): Promise<boolean> => (await socket.reply(socket.send('tokenize', { text: 'a' }))).error === undefined;
    await eventually('the tokenizer is there again', tokenizes);
    await socket.close();
    // What it is asked now runs when both are there, and one hit then is the first for all of it.
    await assertGoesOn(at, expected, () => engine.killActor('executor', 0));
    assert.ok(existsSync(once), 'the other took long');
  });

  test('a group that hangs long before another one has waited enough', async (t) => {
    const fault: RankFault = { rank: 1, where: 'step', how: 'sleep', ms: 20_000, once: join(tempFolder(), 'struck') };
    const patient = ['scheduler.hang_timeout_s=1', 'parallel.comm_timeout_ms=600000'];
    const at = await started(t, [...joined(2), few, ...patient], faultyRankModule(fault));
    at.mayFail();
    const socket = await at.open();
    const ids = many.map((one) => socket.send('chat.completions.create', { ...one, stream: true }));
    await assertOneEndEach(socket, ids);
    assert.ok(existsSync(fault.once), 'it happened');
    await eventually('it is ready', async () => (await fetch(`${at.http}/ready`)).status === 200 && (await groupsOf(at)).length === 2);
    assert.equal((await tokensOf(at, many)).length, many.length);
    await at.untilFreed();
  });

  for (const where of ['create', 'load', 'agree', 'allocate'] as const) {
    test(`a group that fails in its start ends the start of all: ${where}`, async () => {
      const module = faultyRankModule({ rank: 1, where, how: 'throw', ms: 0, once: join(tempFolder(), 'struck') });
      await assert.rejects(startTestDaemon(joined(2), module), /a fault at/);
    });
  }
});

test('SIGTERM ends the process in order, while one group is busy and the other idle, and while both are idle', async () => {
  const cli = fileURLToPath(new URL('../../../daemon/cli/main.js', import.meta.url));
  for (const busy of [true, false]) {
    const env = privateEnv();
    const sets = ['server.port=0', 'inference.device=cpu', 'inference.threads=2', ...joined(2)].flatMap((set) => ['--set', set]);
    const child = spawn(process.execPath, [cli, 'serve', '--json', ...sets], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (part) => {
        said += part;
      });
    const exit = once(child, 'exit');
    await eventually('the daemon is ready', () => {
      assert.equal(child.exitCode, null, said);
      return said.includes('"event":"ready"');
    });
    const socket = await RpcSocket.open(readDaemonFile(env)?.address ?? '');
    const id = socket.send('chat.completions.create', { ...story(1, busy ? 200 : 5), stream: true });
    await socket.event(id, 'delta');
    if (!busy) await socket.reply(id);
    child.kill('SIGTERM');
    assert.equal((await socket.reply(id)).result?.usage?.completion_tokens, busy ? 200 : 5);
    assert.deepEqual(await inTime('the process ends', exit), [0, null], said);
    assert.doesNotMatch(said, /"level":50/, 'nothing failed on the way');
  }
});
