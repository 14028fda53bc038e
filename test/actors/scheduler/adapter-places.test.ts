/** Adapters in the scheduler: who gets a place, that nobody is kept out for ever, and that no two of them share KV. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { AdapterPlaces } from '../../../actors/scheduler/adapter-places.js';
import { type Ask, Rig } from './rig.js';

test('in any order of takings and returns an adapter has one place, which stays its own while it is used', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.integer({ min: 1, max: 6 }), fc.boolean()), { maxLength: 60 }), (steps) => {
      const told = new Map<number, number>();
      const places = new AdapterPlaces(3, (place, adapter) => void told.set(place, adapter));
      const used: [place: number, adapter: number][] = [];
      for (const [adapter, takes] of steps) {
        if (!takes) {
          const [place] = used.splice(adapter % Math.max(1, used.length), 1)[0] ?? [];
          if (place !== undefined) places.release(place);
          continue;
        }
        const others = new Set(used.map(([, one]) => one));
        const possible = others.has(adapter) || others.size < 3;
        assert.equal(places.hasRoomFor(adapter), possible);
        if (!possible) continue;
        const place = places.take(adapter);
        assert.equal(told.get(place), adapter, 'the executors know');
        used.push([place, adapter]);
        places.checkIntegrity(used);
      }
    }),
  );
});

test('the place unused for longest is given on', () => {
  const placed: (readonly [number, number])[] = [];
  const places = new AdapterPlaces(2, (place, adapter) => void placed.push([place, adapter]));
  for (const adapter of [1, 2, 1]) places.release(places.take(adapter));
  places.take(3);
  assert.deepEqual(placed, [
    [0, 1],
    [1, 2],
    [1, 3],
  ]);
});

describe('requests for adapters', () => {
  const prompt = Array.from({ length: 13 }, (_, i) => (i * 3) % 40);
  const asks = (adapter?: number): Ask => ({ prompt, maxTokens: 4, ignoreEos: true, ...(adapter === undefined ? {} : { adapter }) });
  const rigWith = (places: number, ...adapters: number[]): Rig => {
    const rig = new Rig({ adapterPlaces: places });
    for (const adapter of adapters) rig.scheduler.addAdapter(adapter);
    return rig;
  };
  const cached = (rig: Rig, id: number): number | undefined => rig.entry(id).started[0]?.cachedTokens;

  test('share no KV with others, and find their own', () => {
    const rig = rigWith(2, 1, 2);
    const first = [1, 2, undefined].map((adapter) => rig.admit(asks(adapter)));
    rig.run();
    assert.deepEqual(
      first.map((id) => cached(rig, id)),
      [0, 0, 0],
    );
    const second = [1, 2, undefined].map((adapter) => rig.admit(asks(adapter)));
    rig.run();
    assert.deepEqual(
      second.map((id) => cached(rig, id)),
      [12, 12, 12],
    );
    for (const id of [...first, ...second]) rig.assertAnswered(id);
    rig.assertIdle();
  });

  test('that find no place wait, while others pass; none waits for ever', () => {
    const rig = rigWith(1, 1, 2);
    rig.admit(asks(1));
    rig.schedule();
    const waiting = rig.admit(asks(2));
    const base = rig.admit(asks());
    for (let i = 0; i < 6; i++) {
      rig.admit(asks(1)); // one after the other, so that the place never becomes free
      rig.schedule();
      rig.update();
    }
    rig.assertAnswered(base);
    assert.equal(cached(rig, waiting), undefined, 'the others have been faster');
    rig.now += 2000;
    let rounds = 0;
    for (; cached(rig, waiting) === undefined && rounds < 40; rounds++) {
      rig.admit(asks(1));
      rig.schedule();
      rig.update();
    }
    assert.ok(rounds < 40, 'it had its turn');
    rig.run();
    rig.assertAnswered(waiting);
    rig.assertIdle();
  });

  test('are refused without their adapter, which goes when the last of them has ended', () => {
    const rig = rigWith(2, 5);
    const refused = rig.admit(asks(4));
    const taken = rig.admit(asks(5));
    rig.schedule();
    assert.equal(rig.scheduler.dropAdapter(5), 1);
    const late = rig.admit(asks(5));
    assert.equal(rig.scheduler.dropAdapter(5), 1);
    rig.run();
    rig.assertAnswered(taken);
    for (const id of [refused, late]) assert.equal(rig.entry(id).refused?.failure.kind, 'model_not_found');
    assert.equal(rig.scheduler.dropAdapter(5), 0);
    assert.deepEqual(rig.scheduler.adapterUse(), { running: [], waiting: [] });
    rig.assertIdle();
  });
});
