import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Turns } from '../../actors/client-turns.js';

interface Waiting {
  readonly client: number;
  readonly arrival: number;
  readonly turn: number;
}

/** Clients that submit, and an engine that starts the first in order. */
class Queue {
  readonly #turns = new Turns();
  readonly #clients = Array.from({ length: 4 }, () => ({}));
  waiting: Waiting[] = [];
  #arrivals = 0;

  submit(client: number): Waiting {
    const one = { client, arrival: this.#arrivals++, turn: this.#turns.take(this.#clients[client] ?? this) };
    this.waiting.push(one);
    return one;
  }
  start(): Waiting | undefined {
    this.waiting.sort((a, b) => a.turn - b.turn || a.arrival - b.arrival);
    const first = this.waiting.shift();
    if (first !== undefined) this.#turns.began(first.turn);
    return first;
  }
  cancel(one: Waiting): void {
    this.waiting = this.waiting.filter((other) => other !== one);
    this.#turns.giveBack(this.#clients[one.client] ?? this, one.turn);
  }
}

const clients = fc.integer({ min: 0, max: 3 });

test('one request each is served first come, first served', () => {
  const queue = new Queue();
  const order = [2, 0, 3, 1].map((client) => queue.submit(client).client);
  assert.deepEqual(
    order.map(() => queue.start()?.client),
    order,
  );
});

test('two hundred requests of one client do not hold up the first one of another', () => {
  const queue = new Queue();
  for (let i = 0; i < 200; i++) queue.submit(0);
  for (let i = 0; i < 20; i++) queue.start();
  queue.submit(1); // its turn is that of the request which began last
  assert.deepEqual([queue.start()?.client, queue.start()?.client], [1, 0]);
});

test('clients with much to do are served in turn', () => {
  const queue = new Queue();
  for (const client of [0, 1, 2]) for (let i = 0; i < 10; i++) queue.submit(client);
  const served = Array.from({ length: 30 }, () => queue.start()?.client);
  for (let round = 0; round < 30; round += 3) assert.deepEqual(new Set(served.slice(round, round + 3)), new Set([0, 1, 2]));
});

test('a client that asks again at once does not keep others from their turn', () => {
  const queue = new Queue();
  for (let i = 0; i < 5; i++) queue.submit(0);
  queue.submit(1);
  const served: (number | undefined)[] = [];
  for (let i = 0; i < 10; i++) {
    const one = queue.start();
    served.push(one?.client);
    if (one?.client === 1) queue.submit(1);
  }
  assert.equal(served.filter((client) => client === 0).length, 5);
});

test('a request that was cancelled before it ran costs its client no turn', () => {
  const queue = new Queue();
  for (let i = 0; i < 50; i++) queue.cancel(queue.submit(0));
  queue.submit(1);
  queue.submit(1);
  const mine = queue.submit(0);
  queue.start();
  assert.equal(queue.start(), mine);
});

test('whatever is submitted, started and cancelled, a client is served in its own order, and none is forgotten', () => {
  const acts = fc.array(fc.oneof(clients, fc.constant('start' as const), fc.record({ cancel: fc.nat() })), { maxLength: 200 });
  fc.assert(
    fc.property(acts, (all) => {
      const queue = new Queue();
      const lastArrival = new Map<number, number>();
      const served = (one: Waiting | undefined) => {
        if (one === undefined) return;
        assert.ok((lastArrival.get(one.client) ?? -1) < one.arrival);
        lastArrival.set(one.client, one.arrival);
      };
      for (const act of all) {
        if (act === 'start') served(queue.start());
        else if (typeof act === 'number') queue.submit(act);
        else if (queue.waiting.length > 0) queue.cancel(queue.waiting[act.cancel % queue.waiting.length]!); // in range
      }
      const before = queue.waiting.filter((one) => one.client === 0).length;
      const mine = queue.submit(0);
      for (let starts = 1; ; starts++) {
        const one = queue.start();
        served(one);
        if (one === mine) return;
        assert.ok(starts <= all.length + before, 'it is served');
      }
    }),
  );
});
