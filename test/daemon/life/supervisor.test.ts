import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLog } from '../../../actors/runtime/log.js';
import type { Ending } from '../../../daemon/life/child-actor.js';
import { type Life, Supervisor, type Unit } from '../../../daemon/life/supervisor.js';

const crash = (message: string, fatal = false): Ending => ({ failure: { kind: 'engine_failure', message }, fatal });

/** A unit whose lives the test ends. `script` says for each start how it ends before it is ready, if it does. */
class FakeUnit implements Unit {
  readonly name: string;
  readonly stops: number[] = [];
  starts = 0;
  end: (ending: Ending) => void = () => {};
  /** Whether the threads of its lives exit. */
  exits = true;
  readonly stuck: Ending | null;
  readonly #script: readonly (Ending | null | 'never')[];
  readonly #events: string[];

  constructor(name: string, events: string[], script: readonly (Ending | null | 'never')[] = [], stuck: Ending | null = null) {
    this.name = name;
    this.stuck = stuck;
    this.#events = events;
    this.#script = script;
  }

  start(): Life {
    const life = ++this.starts;
    const outcome = this.#script[life - 1] ?? null;
    this.#events.push(`start ${this.name}`);
    return {
      ready: outcome === 'never' ? new Promise(() => {}) : Promise.resolve(outcome),
      ended: new Promise((resolve) => {
        this.end = resolve;
      }),
      stop: async () => {
        this.stops.push(life);
        this.#events.push(`stop ${this.name}`);
        await sleep(1);
        return this.exits;
      },
      kill: (ending) => {
        this.#events.push(`kill ${this.name}`);
        this.end(ending);
      },
    };
  }
}

function rig(make: (events: string[]) => FakeUnit[], max = 3) {
  const events: string[] = [];
  const units = make(events);
  const supervisor = new Supervisor({
    units,
    restarts: { max, windowMs: 60_000 },
    stopLimitMs: 3000,
    log: silentLog,
    hooks: {
      onUp: (unit) => events.push(`up ${unit.name}`),
      onDown: (unit) => events.push(`down ${unit.name}`),
      onFailed: ({ failure }) => events.push(`failed ${failure.message}`),
    },
  });
  return { events, units, supervisor };
}

/** Until nothing has happened for a while. */
async function settle(events: readonly string[]): Promise<void> {
  for (let seen = -1; seen !== events.length; await sleep(40)) seen = events.length;
}

test('units start side by side and stop in reverse order', async () => {
  const { events, supervisor } = rig((e) => [new FakeUnit('a', e), new FakeUnit('b', e)]);
  assert.equal(await supervisor.start(), null);
  await supervisor.stop();
  assert.deepEqual(events, ['start a', 'start b', 'up a', 'up b', 'stop b', 'stop a']);
});

test('a unit that ends is stopped whole and started anew; the others go on', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e), new FakeUnit('b', e)]);
  await supervisor.start();
  events.length = 0;
  units[1]?.end(crash('x'));
  await settle(events);
  assert.deepEqual(events, ['down b', 'stop b', 'start b', 'up b']);
  assert.equal(units[0]?.starts, 1);
  await supervisor.stop();
});

test('when the first start of one fails, all are stopped and the reason is returned', async () => {
  const { events, supervisor } = rig((e) => [new FakeUnit('a', e, ['never']), new FakeUnit('b', e, [crash('no such file')])]);
  assert.deepEqual(await supervisor.start(), crash('no such file'));
  assert.ok(events.includes('stop a') && events.includes('stop b'));
  assert.ok(!events.some((e) => e.startsWith('failed')));
});

test('the first start is not taken for good because all have settled, one of them badly', async () => {
  const { supervisor } = rig((e) => [new FakeUnit('a', e), new FakeUnit('b', e, [crash('bad file')])]);
  assert.deepEqual(await supervisor.start(), crash('bad file'));
});

test('more restarts than allowed in the window end it, counted over all units', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e), new FakeUnit('b', e)], 3);
  await supervisor.start();
  for (let i = 0; i < 4; i++) {
    units[i % 2]?.end(crash(`crash ${i}`));
    await settle(events);
  }
  assert.deepEqual(
    events.filter((e) => e.startsWith('failed')),
    ['failed crash 3'],
  );
  assert.equal((units[0]?.starts ?? 0) + (units[1]?.starts ?? 0), 2 + 3);
  assert.deepEqual(units[0]?.stops.at(-1), units[0]?.starts, 'the last life of a was stopped too');
});

test('a restart that fails counts, and is tried again', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e, [null, crash('again'), null])]);
  await supervisor.start();
  units[0]?.end(crash('x'));
  await settle(events);
  assert.deepEqual(events, ['start a', 'up a', 'down a', 'stop a', 'start a', 'stop a', 'start a', 'up a']);
  await supervisor.stop();
});

test('a unit that cannot start any more uses the restarts up', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e, [null, crash('1'), crash('2'), crash('3')])]);
  await supervisor.start();
  units[0]?.end(crash('x'));
  await settle(events);
  assert.equal(events.at(-2), 'failed 3');
  assert.equal(units[0]?.starts, 4);
});

test('a fatal end is not answered with a restart', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e)]);
  await supervisor.start();
  units[0]?.end(crash('sticky', true));
  await settle(events);
  assert.deepEqual(events.slice(2), ['down a', 'failed sticky', 'stop a']);
});

test('a unit that hangs is ended at once and started anew', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e), new FakeUnit('b', e)]);
  await supervisor.start();
  events.length = 0;
  supervisor.kill(units[1] as Unit, crash('hangs'));
  await settle(events);
  assert.deepEqual(events, ['kill b', 'down b', 'stop b', 'start b', 'up b']);
  await supervisor.stop();
});

test('a thread that does not exit ends the whole where no successor may live beside it', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e), new FakeUnit('b', e, [], crash('stuck', true))]);
  await supervisor.start();
  const [, b] = units;
  assert.ok(b);
  b.exits = false;
  supervisor.kill(b, crash('hangs'));
  await settle(events);
  assert.deepEqual(events.slice(4), ['kill b', 'down b', 'stop b', 'failed stuck', 'stop b', 'stop a']);
  assert.equal(b.starts, 1);
});

test('elsewhere a successor is started beside it, but only a few threads are left behind', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e)], 10);
  await supervisor.start();
  const [a] = units;
  assert.ok(a);
  a.exits = false;
  for (let i = 0; i < 3; i++) {
    supervisor.kill(a, crash('hangs'));
    await settle(events);
  }
  assert.equal(a.starts, 3);
  assert.match(events.join(), /failed Too many threads/);
});

test('after a stop nothing is started or told, also when a unit ends meanwhile', async () => {
  const { events, units, supervisor } = rig((e) => [new FakeUnit('a', e)]);
  await supervisor.start();
  units[0]?.end(crash('x'));
  await supervisor.stop();
  await settle(events);
  assert.equal(units[0]?.starts, 1);
  assert.ok(!events.some((e) => e.startsWith('down')));
});

test('a stop while units start ends the start', async () => {
  const { supervisor, units } = rig((e) => [new FakeUnit('a', e, ['never'])]);
  void supervisor.start();
  await supervisor.stop();
  assert.deepEqual(units[0]?.stops, [1]);
});
