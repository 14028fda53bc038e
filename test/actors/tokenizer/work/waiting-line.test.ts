import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Cancellation } from '../../../../actors/runtime/cancellation.js';
import { WaitingLine } from '../../../../actors/tokenizer/work/waiting-line.js';

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('nobody waits in an empty line', () => {
  assert.equal(new WaitingLine().next(), false);
});

test('however many come and leave, each goes on or is told to have left, once; clients take turns and keep their own order', async () => {
  const event = fc.record({ do: fc.constantFrom('wait' as const, 'wait' as const, 'leave' as const, 'next' as const), at: fc.nat(50) });
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 80 }), async (events) => {
      const line = new WaitingLine();
      const all: { client: number; cancellation: Cancellation; ends: string[] }[] = [];
      const went: number[] = [];
      for (const { do: what, at } of events) {
        if (what === 'wait') {
          const one = { client: at % 4, cancellation: new Cancellation(), ends: [] as string[] };
          const number = all.push(one) - 1;
          line.wait(one).then(
            () => {
              one.ends.push('went on');
              went.push(number);
            },
            () => one.ends.push('left'),
          );
        } else if (what === 'leave') all[at % Math.max(1, all.length)]?.cancellation.cancel();
        else {
          const waiting = all.filter((one) => one.ends.length === 0 && !one.cancellation.cancelled);
          assert.equal(line.next(), waiting.length > 0);
        }
        await settled();
      }
      while (line.next());
      await settled();
      assert.deepEqual(
        all.filter((one) => one.ends.length !== 1),
        [],
      );
      for (let client = 0; client < 4; client++) {
        const own = went.filter((number) => all[number]?.client === client);
        assert.deepEqual(
          own,
          own.toSorted((a, b) => a - b),
        );
      }
    }),
    { numRuns: 100 },
  );
});

test('a newcomer goes on after at most one of each other client, and at once after the one that went on last', async () => {
  const line = new WaitingLine();
  const went: string[] = [];
  const wait = (client: number, name: string): void => {
    void line.wait({ client, cancellation: new Cancellation() }).then(() => went.push(name));
  };
  for (let i = 0; i < 100; i++) for (const client of [1, 2, 3]) wait(client, `${client}`);
  line.went(1);
  line.next();
  wait(4, 'newcomer');
  for (let i = 0; i < 4; i++) line.next();
  await settled();
  assert.deepEqual(went, ['2', '1', '3', '2', 'newcomer']);
  const two = new WaitingLine();
  const order: string[] = [];
  two.went(1);
  for (const client of [1, 1, 2]) void two.wait({ client, cancellation: new Cancellation() }).then(() => order.push(`${client}`));
  while (two.next());
  await settled();
  assert.deepEqual(order, ['2', '1', '1']);
});
