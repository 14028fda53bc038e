import assert from 'node:assert/strict';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { EngineState } from '../../../actors/client-types.js';
import type { ProfileCall } from '../../../actors/messages/control.js';
import { InferdError } from '../../../actors/messages/errors.js';
import { SPAN } from '../../../actors/messages/profile.js';
import { silentLog } from '../../../actors/runtime/log.js';
import { checkProfileFolder, EngineProfiler, type ProfilerOptions, type Recorder } from '../../../daemon/profile/profiler.js';
import { checkTrace, plansOf, readTrace, recordingOf } from '../../helpers/daemon/profile.js';
import { tempFolder } from '../../helpers/temp-folder.js';

/** Actors that write down what they are asked, and fail when told to. */
class Actors {
  readonly asked: string[] = [];
  failAt: string | null = null;
  readonly list: readonly Recorder[];

  constructor(ranks: number) {
    const executors = Array.from({ length: ranks }, (_, rank) => this.#recorder('executor', rank));
    this.list = [this.#recorder('scheduler', 0), ...executors];
  }

  #recorder(kind: Recorder['kind'], rank: number): Recorder {
    const ask = async (make: (call: number) => ProfileCall): Promise<unknown> => {
      const what = `${make(1).k} ${kind} ${rank}`;
      this.asked.push(what);
      if (what === this.failAt) throw new InferdError('engine_failure', 'The thread is over');
      if (make(1).k === 'record') return null;
      if (kind === 'scheduler') return plansOf([[1, 1, 1]]);
      return { spans: recordingOf([{ kind: SPAN.submit, startUs: 5, durationUs: 1, step: 1 }]), device: null, deviceOffsetUs: 0 };
    };
    return { kind, group: 0, rank, ask };
  }
}

function profilerOf(actors: Actors, options: Partial<ProfilerOptions> = {}) {
  const directory = tempFolder();
  const profiler = new EngineProfiler({
    directory,
    maxSeconds: 60,
    maxEvents: 1000,
    version: '0',
    log: silentLog,
    recorders: () => actors.list,
    state: () => 'ready',
    model: () => null,
    ...options,
  });
  return { profiler, directory };
}
const failure = (kind: string, message: RegExp) => (error: unknown) =>
  error instanceof InferdError && error.failure.kind === kind && message.test(error.message);

test('a profile is one whole file a rank, and the next one has files of its own', async () => {
  const { profiler, directory } = profilerOf(new Actors(2));
  const all = new Set<string>();
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(await profiler.start(), { status: 'recording', files: [] });
    const { status, files, ended_by, summary } = await profiler.stop();
    assert.deepEqual([status, ended_by, files.length, summary.map((s) => s.rank)], ['written', 'asked', 2, [0, 1]]);
    for (const [rank, file] of files.entries()) {
      assert.ok(file.startsWith(join(directory, `tp${rank}`)));
      const trace = readTrace(file);
      checkTrace(trace);
      assert.deepEqual(trace.otherData['summary'], JSON.parse(JSON.stringify(summary[rank])));
      all.add(file);
    }
  }
  assert.equal(all.size, 4);
  assert.equal(readdirSync(join(directory, 'tp0')).length, 2, 'no half file is left');
});

test('starting twice and stopping without a start are refused in one sentence', async () => {
  const { profiler } = profilerOf(new Actors(1));
  await assert.rejects(profiler.stop(), failure('request_failed', /No profile is being recorded/));
  const starting = profiler.start();
  await assert.rejects(profiler.start(), failure('request_failed', /recorded already/));
  await starting;
  await assert.rejects(profiler.start(), failure('request_failed', /recorded already/));
  const stopping = profiler.stop();
  await assert.rejects(profiler.start(), failure('request_failed', /being written/));
  assert.deepEqual(await profiler.stop(), await stopping, 'two who stop get the same answer');
  await assert.rejects(profiler.stop(), failure('request_failed', /No profile/));
});

test('an actor that cannot start leaves no other one recording', async () => {
  const actors = new Actors(2);
  const { profiler } = profilerOf(actors);
  actors.failAt = 'record executor 1';
  await assert.rejects(profiler.start(), failure('engine_failure', /over/));
  assert.deepEqual(actors.asked.slice(3), ['handover scheduler 0', 'handover executor 0']);
  actors.failAt = null;
  await profiler.start();
  assert.equal((await profiler.stop()).files.length, 2);
});

test('an actor that died while recording makes stop say so, and the next profile is possible', async () => {
  const actors = new Actors(1);
  const { profiler, directory } = profilerOf(actors);
  await profiler.start();
  actors.failAt = 'handover executor 0';
  await assert.rejects(profiler.stop(), failure('engine_failure', /recording is lost: .*The thread is over/));
  assert.deepEqual(readdirSync(join(directory, 'tp0')), []);
  actors.failAt = null;
  await profiler.start();
  await profiler.stop();
});

test('a recording ends by itself after max_seconds, and the next stop tells of it', async () => {
  const { profiler, directory } = profilerOf(new Actors(1), { maxSeconds: 0.05 });
  await profiler.start();
  while (readdirSync(join(directory, 'tp0')).filter((f) => f.endsWith('.gz')).length === 0) await new Promise((r) => setTimeout(r, 10));
  const { ended_by, files } = await profiler.stop();
  assert.equal(ended_by, 'max_seconds');
  assert.equal(files.length, 1);
  await assert.rejects(profiler.stop(), failure('request_failed', /No profile/));
});

test('the end of the daemon writes what is being recorded', async () => {
  const { profiler, directory } = profilerOf(new Actors(1));
  await profiler.close();
  const starting = profiler.start();
  await profiler.close();
  await starting;
  assert.equal(readdirSync(join(directory, 'tp0')).filter((f) => f.endsWith('.trace.json.gz')).length, 1);
  assert.equal((await profiler.stop()).ended_by, 'the daemon stops');
});

test('a folder that cannot be written is refused before anything is recorded', async () => {
  const file = join(tempFolder(), 'file');
  writeFileSync(file, '');
  const actors = new Actors(1);
  const { profiler } = profilerOf(actors, { directory: join(file, 'profiles') });
  await assert.rejects(profiler.start(), failure('request_failed', /cannot be written to .*tp0 \(ENOTDIR\); change profile\.directory/));
  assert.deepEqual(actors.asked, []);
  const good = join(tempFolder(), 'made', 'on the way');
  checkProfileFolder(good, { groups: 1, ranks: 2 });
  checkProfileFolder(good, { groups: 2, ranks: 2 });
  for (const name of ['tp0', 'tp1', 'dp0_tp0', 'dp0_tp1', 'dp1_tp0', 'dp1_tp1']) assert.ok(existsSync(join(good, name)), name);
});

test('without a running engine the reason is that of its state', async () => {
  const kinds: Partial<Record<EngineState, string>> = { starting: 'model_loading', restarting: 'engine_failure', stopped: 'shutting_down' };
  for (const [state, kind] of Object.entries(kinds)) {
    const { profiler } = profilerOf(new Actors(1), { recorders: () => [], state: () => state as EngineState });
    await assert.rejects(profiler.start(), failure(kind, /./));
  }
});
