/** The tokenizer's host on this thread's event loop, with the embedded model's tokenizer; the test plays front, scheduler and supervisor. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { MessageChannel } from 'node:worker_threads';
import type { CallReply, TokenizerCall } from '../../../actors/messages/calls.js';
import type { ToActor } from '../../../actors/messages/control.js';
import type { RequestId } from '../../../actors/messages/ids.js';
import type { Abort, Admit, Deltas, Encoded, Failed, Refused, Stopped, Submit, Tokens } from '../../../actors/messages/requests.js';
import type { TextBounds } from '../../../actors/messages/text-bounds.js';
import { createTaken } from '../../../actors/routing/on-the-way.js';
import { Control } from '../../../actors/runtime/actor.js';
import { createCounters, TOKENIZER_COUNTER } from '../../../actors/runtime/counters.js';
import { createLink, EventLink } from '../../../actors/runtime/mailbox.js';
import { runTokenizer } from '../../../actors/tokenizer/host.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { topologyOf } from '../../../daemon/life/topology.js';
import { generation } from '../../helpers/engine/generation.js';
import { eventually } from '../../helpers/eventually.js';

type ToFront = Encoded | Deltas | Failed | CallReply;
type ToScheduler = Admit | Abort | Stopped;

/** Lets the test do something just before the host looks for what the supervisor said, and counts what it hears. */
class WatchedControl extends Control {
  beforePoll: () => void = () => {};
  /** Messages that came by the event loop. */
  heard = 0;

  override listen(handle: (message: ToActor) => void): void {
    super.listen((message) => {
      this.heard++;
      handle(message);
    });
  }

  override poll(handle?: (message: ToActor) => void): void {
    this.beforePoll();
    super.poll(handle);
  }
}

function openHost() {
  const { config } = loadConfig({ env: {}, sets: [] });
  const [tokenizer] = topologyOf(config, resolveModelFolder(config, {})).tokenizers;
  assert.ok(tokenizer);
  const { port1, port2 } = new MessageChannel();
  const [frontEnd, theirs] = createLink(null, null);
  const toFront: ToFront[] = [];
  const bounds: TextBounds[] = [];
  const front = new EventLink<TextBounds | ToFront, Submit | Abort | TokenizerCall>(frontEnd, (m) => {
    if (m.k === 'bounds') bounds.push(m);
    else toFront.push(m);
  });
  const counters = createCounters(TOKENIZER_COUNTER.cells);
  const control = new WatchedControl(port2, {});
  const done = runTokenizer({ tokenizer, front: theirs, counters }, control);
  const connect = () => {
    const [own, link] = createLink(null, null);
    const got: ToScheduler[] = [];
    const scheduler = new EventLink<ToScheduler, Tokens | Refused>(own, (m) => got.push(m));
    port1.postMessage({ k: 'connect', link, group: { index: 0, board: null, taken: createTaken() } } satisfies ToActor, [link.port]);
    return { scheduler, got };
  };
  const disconnect = (): void => port1.postMessage({ k: 'disconnect', groups: [0] } satisfies ToActor);
  const submit = (id: number): void => {
    const params = generation({ maxTokens: 500, ignoreEos: true });
    const prompt = { kind: 'ids', ids: [1, 2, 3] } as const;
    front.post({ k: 'submit', id: id as RequestId, prompt, params, arrivalMs: 0, turn: 0, client: 0, size: 10 });
  };
  const stop = async (): Promise<void> => {
    port1.postMessage({ k: 'stop' } satisfies ToActor);
    await done;
    front.close();
    port1.close();
  };
  return { front, bounds, toFront, connect, disconnect, submit, stop, counters, control };
}

const token = (id: number): Tokens => ({ k: 'tokens', ids: [id], indices: [0], tokens: [300], finishes: [0] });

test('requests that came before the first scheduler, or lost theirs, are admitted to the next one', async () => {
  const { toFront, connect, disconnect, submit, stop, control } = openHost();
  submit(1);
  await eventually('it is said', () => toFront.length === 1);
  const first = connect();
  await eventually('it is said', () => first.got.length === 1);
  submit(2);
  await eventually('it is said', () => first.got.length === 2);
  first.scheduler.post(token(2));
  await eventually('it is said', () => toFront.some((m) => m.k === 'deltas'));
  const heard = control.heard;
  disconnect();
  // Messages of two ports may come in either order.
  await eventually('it is heard', () => control.heard > heard);
  submit(3);
  await eventually('it is said', () => toFront.some((m) => m.k === 'encoded' && m.id === 3));
  first.scheduler.close();
  assert.equal(first.got.length, 2, 'who is gone is told nothing more');
  const second = connect();
  await eventually('it is said', () => second.got.length === 3);
  const admits = second.got.flatMap((m) => (m.k === 'admit' ? [m] : []));
  assert.deepEqual(
    admits.map((m) => [m.id, m.generated.map((g) => g.byteLength)]),
    [
      [1, [0]],
      [2, [4]],
      [3, [0]],
    ],
  );
  const third = connect();
  await eventually('it is said', () => third.got.length === 1 && toFront.filter((m) => m.k === 'failed').length === 2);
  assert.deepEqual(
    third.got.map((m) => (m.k === 'admit' ? m.id : m.k)),
    [3],
    'two schedulers were told of the others',
  );
  third.scheduler.close();
  second.scheduler.close();
  await stop();
});

test('what texts the tokenizer takes is said once, before any request', async () => {
  const { bounds, stop } = openHost();
  await eventually('it is said', () => bounds.length === 1);
  assert.deepEqual([bounds[0]?.charsOfAnId, bounds[0]?.stretch?.bytes, bounds[0]?.stretch?.controlStarts], [25, 4 * 2 ** 20, '<']);
  await stop();
  assert.equal(bounds.length, 1);
});

test('a request that overtakes the coming of a scheduler is admitted to it once, as are those that had waited', async () => {
  const { toFront, connect, submit, stop, control } = openHost();
  submit(1);
  await eventually('it is said', () => toFront.length === 1);
  let next: ReturnType<typeof connect> | undefined;
  control.beforePoll = () => {
    next ??= connect();
  };
  submit(2);
  await eventually('it is said', () => toFront.length === 2);
  assert.ok(next);
  const { scheduler, got } = next;
  scheduler.post(token(1));
  await eventually('it is said', () => toFront.length === 3);
  assert.deepEqual(
    got.map((m) => (m.k === 'admit' ? m.id : m.k)),
    [1, 2],
  );
  scheduler.close();
  await stop();
});

test('while the front is far behind, tokens stay in the link of the scheduler, which sees it; nothing is lost', async () => {
  const { front, toFront, connect, submit, stop, counters } = openHost();
  const { scheduler, got } = connect();
  submit(1);
  await eventually('it is said', () => got.length === 1);
  assert.equal(counters[TOKENIZER_COUNTER.size], 1);
  front.setPaused(true);
  for (let i = 0; i < 200; i++) {
    scheduler.post(token(1));
    scheduler.flush();
  }
  await eventually('it is said', () => scheduler.behind() < 200);
  await sleep(20);
  assert.ok(scheduler.full, `${scheduler.behind()} behind`);
  front.setPaused(false);
  await eventually('it is said', () => toFront.flatMap((m) => (m.k === 'deltas' ? m.deltas : [])).flatMap((d) => d.tokens).length === 200);
  assert.equal(scheduler.behind(), 0);
  assert.equal(counters[TOKENIZER_COUNTER.busySinceMs], 0);
  scheduler.close();
  await stop();
});
