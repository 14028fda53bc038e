import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import type { FromActor, ToActor } from '../../../actors/messages/control.js';
import { Control, runParked } from '../../../actors/runtime/actor.js';
import { createDoorbell, ring } from '../../../actors/runtime/doorbell.js';

function openControl() {
  const { port1, port2 } = new MessageChannel();
  const said = (): FromActor[] => {
    const messages: FromActor[] = [];
    for (let m = receiveMessageOnPort(port1); m !== undefined; m = receiveMessageOnPort(port1)) messages.push(m.message as FromActor);
    return messages;
  };
  return {
    control: new Control(port2, { actor: 'x' }),
    tell: (m: ToActor) => port1.postMessage(m),
    said,
    close: () => port1.close(),
  };
}

test('an actor says ready, progress and fault in order, and its log lines carry its name', () => {
  const { control, said, close } = openControl();
  control.progress({ phase: 'weights', done: 1, total: 2 });
  control.log.warn({ rows: 4 }, 'words');
  control.ready(null);
  control.fault({ failure: { kind: 'internal' }, fatal: true });
  assert.deepEqual(said(), [
    { k: 'progress', progress: { phase: 'weights', done: 1, total: 2 } },
    { k: 'log', level: 'warn', fields: { actor: 'x', rows: 4 }, message: 'words' },
    { k: 'ready', capacity: null },
    { k: 'fault', failure: { kind: 'internal' }, fatal: true },
  ]);
  close();
});

test('poll remembers a stop and hands over everything else', () => {
  const { control, tell, close } = openControl();
  const got: string[] = [];
  tell({ k: 'detach', owner: 1 });
  tell({ k: 'stop' });
  tell({ k: 'detach', owner: 2 });
  assert.equal(control.stopping, false);
  control.poll((m) => got.push(m.k));
  assert.deepEqual(got, ['detach', 'detach']);
  assert.equal(control.stopping, true);
  close();
});

test('a parked loop looks before it sleeps after turns that a ring began, and after no others', () => {
  const { control, tell, close } = openControl();
  const bell = createDoorbell();
  const rungIn = [2, 3, 6];
  const lookedAfter: number[] = [];
  let turns = 0;
  runParked(
    bell,
    control,
    () => {
      turns++;
      if (rungIn.includes(turns)) ring(bell);
      if (turns === 9) tell({ k: 'stop' });
      control.poll();
      return 1;
    },
    () => {
      lookedAfter.push(turns);
      return 1;
    },
  );
  assert.deepEqual(
    lookedAfter,
    rungIn.map((turn) => turn + 1),
  );
  close();
});

test('a parked loop comes again after a ring during its turn, and ends after a stop', () => {
  const { control, tell, close } = openControl();
  const bell = createDoorbell();
  let turns = 0;
  runParked(bell, control, () => {
    control.poll();
    turns++;
    if (turns < 5) ring(bell);
    else tell({ k: 'stop' });
    return turns < 5 ? 60_000 : 0;
  });
  assert.equal(turns, 6);
  close();
});
