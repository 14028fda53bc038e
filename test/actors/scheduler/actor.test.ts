/** The scheduler's loop on this thread, for as many turns as a test needs; the test plays front, tokenizer, executor and supervisor. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import type { EngineCall } from '../../../actors/messages/calls.js';
import type { FromActor, ToActor } from '../../../actors/messages/control.js';
import type { RequestId } from '../../../actors/messages/ids.js';
import type { Admit, Flow } from '../../../actors/messages/requests.js';
import { createTaken } from '../../../actors/routing/on-the-way.js';
import { createQueueRoom, openQueueRoom } from '../../../actors/routing/queue-room.js';
import { Control } from '../../../actors/runtime/actor.js';
import { createCounters, SCHEDULER_COUNTER } from '../../../actors/runtime/counters.js';
import { createDoorbell, listen } from '../../../actors/runtime/doorbell.js';
import { createLink, ParkedLink } from '../../../actors/runtime/mailbox.js';
import { createRing, RingReader } from '../../../actors/runtime/ring.js';
import { runScheduler } from '../../../actors/scheduler/actor.js';
import { bytes, defaultOptions, samplingRow } from './rig.js';

/** Says stop in a certain turn. */
class TurnControl extends Control {
  turnsLeft = 0;
  onLastTurn: () => void = () => {};

  override poll(handle?: (message: ToActor) => void): void {
    if (--this.turnsLeft === 0) this.onLastTurn();
    super.poll(handle);
  }
}

function openScheduler(spinUs = 0) {
  const { port1, port2 } = new MessageChannel();
  const bell = createDoorbell();
  const executorBell = createDoorbell();
  const [frontEnd, theirFront] = createLink(null, bell);
  const [tokenizerEnd, theirTokenizer] = createLink(null, bell);
  const front = new ParkedLink<unknown, Flow | EngineCall>(frontEnd);
  const tokenizer = new ParkedLink<unknown, Admit>(tokenizerEnd);
  const ring = () => createRing({ capacityBytes: 4096, readers: 1, maxEntryBytes: 2 ** 20 });
  const planRing = ring();
  const plans = new RingReader(planRing, 0, bell);
  const counters = createCounters(SCHEDULER_COUNTER.cells);
  const tell = (message: ToActor): void => port1.postMessage(message);
  const run = (turns: number): FromActor[] => {
    const control = new TurnControl(port2, {});
    control.turnsLeft = turns;
    control.onLastTurn = () => tell({ k: 'stop' });
    const place = { group: 0, room: createQueueRoom(defaultOptions.maxQueue, 1), board: null, spinUs };
    openQueueRoom(place.room, 0);
    const start = {
      options: defaultOptions,
      bell,
      front: theirFront,
      plans: planRing,
      results: ring(),
      executorBells: [executorBell],
      counters,
      ...place,
    };
    runScheduler(start, control);
    const said: FromActor[] = [];
    for (let m = receiveMessageOnPort(port1); m !== undefined; m = receiveMessageOnPort(port1)) said.push(m.message as FromActor);
    port1.close();
    front.close();
    tokenizer.close();
    return said;
  };
  const attach = (): void =>
    port1.postMessage({ k: 'attach', owner: 0, link: theirTokenizer, taken: createTaken() } satisfies ToActor, [theirTokenizer.port]);
  const admit = (id: number): void => {
    tokenizer.post({
      k: 'admit',
      id: id as RequestId,
      promptIds: bytes([1, 2, 3]),
      generated: [],
      finished: [],
      samplingRow: new Uint8Array(samplingRow({ prompt: [] }).buffer),
      bias: bytes([]),
      maxTokens: 4,
      stopTokenIds: [],
      ignoreEos: true,
      bestOf: 1,
      priority: 0,
      arrivalMs: 0,
      turn: 0,
    });
    tokenizer.flush();
  };
  return { front, plans, counters, executorBell, tell, run, attach, admit };
}

test('a pause that comes before the admission holds the request back', () => {
  for (const paused of [false, true]) {
    const { front, plans, counters, run, attach, admit } = openScheduler();
    if (paused) front.post({ k: 'flow', id: 1 as RequestId, paused });
    front.flush();
    attach();
    admit(1);
    run(2);
    assert.equal(counters[SCHEDULER_COUNTER.running], paused ? 0 : 1);
    assert.equal(counters[SCHEDULER_COUNTER.waiting], paused ? 1 : 0);
    assert.equal(plans.read() === null, paused);
  }
});

test('executors are woken ahead of the first plan where it is worth it, and with plans alone else', () => {
  for (const spinUs of [0, 1]) {
    const { plans, executorBell, run, attach, admit } = openScheduler(spinUs);
    attach();
    admit(1);
    run(2);
    let written = 0;
    while (plans.read() !== null) written++;
    assert.ok(written > 0);
    assert.equal(listen(executorBell), written + (spinUs > 0 ? 1 : 0));
  }
});

test('a recording that cannot begin or end is refused, and the scheduler goes on', () => {
  const { tell, run } = openScheduler();
  tell({ k: 'record', call: 1, maxEvents: 2 ** 53 - 1 });
  tell({ k: 'handover', call: 2 });
  tell({ k: 'record', call: 3, maxEvents: 10 });
  tell({ k: 'record', call: 4, maxEvents: 10 });
  tell({ k: 'handover', call: 5 });
  const said = run(2);
  assert.deepEqual(
    said.map((m) => (m.k === 'reply' ? [m.call, m.ok ? 'ok' : m.failure.kind] : m.k)),
    ['ready', [1, 'request_failed'], [2, 'request_failed'], [3, 'ok'], [4, 'request_failed'], [5, 'ok']],
  );
});
