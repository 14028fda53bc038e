/**
 * A daemon whose model is split over ranks, on the CPU: the answers of a whole one, and one end for all ranks whatever becomes of one of
 * them.
 */
import assert from 'node:assert/strict';
import { basename, dirname, join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { readTrace, spans, stepsOf } from '../helpers/daemon/profile.js';
import { faultyRankModule, type RankFault } from '../helpers/engine/faulty-rank.js';
import { eventually } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { assertOneEndEach } from '../helpers/wire/one-end.js';
import { story } from './story.js';

const indices = Array.from({ length: 8 }, (_, i) => i);
const ranked = (size: number) => [`parallel.tensor_parallel_size=${size}`, 'parallel.comm_timeout_ms=1000'];
/** Blocks for a few sequences at a time, which have to give way to each other. */
const crowded = [
  'cache.num_gpu_blocks_override=40',
  'scheduler.max_model_len=512',
  'scheduler.preemption_mode=swap',
  'cache.swap_space_bytes=67108864',
];

async function tokensOf(at: TestDaemon, extra: Record<string, unknown> = {}): Promise<unknown[]> {
  const socket = await at.open();
  const answers = await Promise.all(indices.map((i) => socket.call('chat.completions.create', { ...story(i, 60), ...extra })));
  await socket.close();
  return answers.map((a) => a.choices?.[0]?.token_ids);
}

/** Ends with the test, however that ends: else it would keep the process. */
async function started(t: TestContext, sets: readonly string[] = [], module?: string): Promise<TestDaemon> {
  const at = await startTestDaemon(sets, module);
  t.after(() => at.close());
  return at;
}

test('answers are those of a whole model: greedy, drawn, under a grammar, crowded and swapped', async (t) => {
  const whole = await started(t);
  const drawn = { temperature: 0.8, top_p: 0.9, seed: 11, presence_penalty: 0.4 };
  const formed = { guided_regex: '[a-z]{3,9}( [a-z]{1,7}){4}', max_tokens: 30, ignore_eos: false };
  const expected = [await tokensOf(whole), await tokensOf(whole, drawn), await tokensOf(whole, formed)];
  for (const size of [2, 4]) {
    for (const sets of [[], crowded]) {
      const at = await started(t, [...ranked(size), ...sets]);
      const got = [await tokensOf(at), await tokensOf(at, drawn), await tokensOf(at, formed)];
      assert.deepEqual(got, expected, `${size} ranks, ${sets.length === 0 ? 'room for all' : 'crowded'}`);
      await at.untilFreed();
    }
  }
});

test('the model is reported as one', async (t) => {
  const [whole, split] = [await started(t), await started(t, ranked(2))];
  const told = await Promise.all(
    [whole, split].map(async (at) => {
      const socket = await at.open();
      const { data } = (await socket.call('models.list')) as { data?: readonly Record<string, unknown>[] };
      const { memory } = (await at.stats()) as { memory?: { weight_bytes: number } };
      return { model: data?.[0] ?? {}, weightBytes: memory?.weight_bytes ?? 0 };
    }),
  );
  const [one, two] = told;
  assert.match(`${two?.model['backend']}`, /^2 ranks of cpu .* x1$/);
  assert.equal(two?.model['parameters'], one?.model['parameters']);
  const more = (two?.weightBytes ?? 0) / (one?.weightBytes ?? 1);
  assert.ok(more >= 1 && more < 1.01, `norms are held twice, nothing else: ${more}`);
});

test('ranks are recorded each in a folder of its own, with the same steps', async (t) => {
  const at = await started(t, ranked(2));
  const socket = await at.open();
  await socket.call('profile.start');
  await tokensOf(at);
  const { files } = (await socket.call('profile.stop')) as unknown as { files: readonly string[] };
  assert.deepEqual(
    files.map((file) => basename(dirname(file))),
    ['tp0', 'tp1'],
  );
  const [first = [], second] = files.map((file) => stepsOf(spans(readTrace(file), 'submit')));
  assert.ok(first.length >= 60, `${first.length} steps`);
  assert.deepEqual(second, first);
});

const limitMs = 1000;

async function assertRestarts(t: TestContext, fault: Omit<RankFault, 'once'>): Promise<void> {
  const module = faultyRankModule({ ...fault, once: join(tempFolder(), 'struck') });
  const at = await started(t, ranked(2), module);
  at.mayFail();
  const socket = await at.open();
  const ids = indices.map((i) => socket.send('chat.completions.create', { ...story(i, 60), stream: true }));
  await assertOneEndEach(socket, ids);
  await eventually('it is ready', async () => (await fetch(`${at.http}/ready`)).status === 200);
  const again = await socket.call('chat.completions.create', story(1, 20));
  assert.equal(again.choices?.[0]?.token_ids?.length, again.usage?.completion_tokens);
  await at.untilFreed();
}

describe('a rank that fails while requests run ends the engine once, which starts again', () => {
  for (const where of ['step', 'op'] as const) {
    for (const how of ['exit', 'sleep', 'throw'] as const) {
      if (where === 'op' && how === 'exit') continue; // no thread of JavaScript is in a collective
      const rank = where === 'step' && how !== 'sleep' ? 0 : 1;
      test(`rank ${rank}: ${how} at ${where}`, (t) => assertRestarts(t, { rank, where, how, ms: 2 * limitMs }));
    }
  }

  test('killed from outside', async (t) => {
    const at = await started(t, ranked(4));
    const socket = await at.open();
    for (const rank of [0, 3]) {
      const ids = indices.map((i) => socket.send('chat.completions.create', { ...story(i, 60), stream: true }));
      for (const id of ids) await socket.event(id, 'delta');
      at.mayFail();
      at.daemon.engine.killActor('executor', rank);
      await assertOneEndEach(socket, ids);
    }
  });
});

describe('a rank that fails in its start ends the start of all', () => {
  for (const where of ['create', 'load', 'agree', 'allocate'] as const) {
    for (const how of ['exit', 'throw'] as const) {
      test(`${how} at ${where}`, async () => {
        const module = faultyRankModule({ rank: 1, where, how, ms: 0, once: join(tempFolder(), 'struck') });
        await assert.rejects(startTestDaemon(ranked(2), module), how === 'throw' ? /a fault at/ : /executor 1 ended|parted/);
      });
    }
  }

  for (const where of ['create', 'load', 'agree', 'allocate'] as const) {
    test(`a slow one is waited for at ${where}`, async (t) => {
      const module = faultyRankModule({ rank: 1, where, how: 'sleep', ms: 2 * limitMs, once: join(tempFolder(), 'struck') });
      const at = await started(t, ranked(2), module);
      assert.equal((await tokensOf(at)).length, indices.length);
    });
  }
});

describe('the end of a daemon', () => {
  for (const how of ['exit', 'sleep', 'throw'] as const) {
    test(`waits for no rank that does not end in order: ${how}`, async () => {
      const module = faultyRankModule({ rank: 1, where: 'close', how, ms: limitMs, once: join(tempFolder(), 'struck') });
      const at = await startTestDaemon(ranked(2), module);
      at.mayFail();
      await tokensOf(at);
      await at.close();
    });
  }
});
