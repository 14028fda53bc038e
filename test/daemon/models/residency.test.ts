/** Which models are loaded when: random sequences of what can happen, held to what must always be so, and the rules one by one. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { Failure } from '../../../actors/messages/errors.js';
import { Residency, type Waiter } from '../../../daemon/models/residency.js';

/** Models with a size, and engines that start and stop when the test says so. */
class World {
  readonly sizes = new Map([
    ['a', 1],
    ['b', 2],
    ['c', 3],
    ['p', 2],
  ]);
  readonly loading = new Set<string>();
  readonly loaded = new Set<string>();
  readonly unloading = new Set<string>();
  readonly leases: { readonly name: string; readonly generation: number }[] = [];
  readonly waiting = new Map<Waiter, string>();
  maxLoaded = 3;
  capacity = 5;
  keepAliveMs = 100;
  now = 0;
  refusals: Failure[] = [];
  /** What was unloaded while in use, or pinned, or too much. */
  readonly faults: string[] = [];
  readonly residency = new Residency(
    () => ({
      maxLoaded: this.maxLoaded,
      keepAliveMs: this.keepAliveMs,
      maxWaiting: 6,
      isPinned: (name) => name === 'p',
      isKept: (name) => name === 'a',
    }),
    { lacks: (name, gone) => this.#lacks(name, gone) },
    {
      load: (name) => {
        this.loading.add(name);
        if (this.#held().length > this.maxLoaded) this.faults.push(`too many with ${name}`);
        if (this.#held().reduce((sum, one) => sum + this.#size(one), 0) > this.capacity) this.faults.push(`too large with ${name}`);
      },
      unload: (name) => {
        if (!this.asked.has(name) && (name === 'p' || this.leases.some((lease) => lease.name === name)))
          this.faults.push(`${name} was unloaded`);
        this.loading.delete(name);
        this.loaded.delete(name);
        this.unloading.add(name);
      },
    },
  );
  /** Models that may go whatever they are: somebody said so, or they failed. */
  readonly asked = new Set<string>();

  want(name: string, explicit = false): Waiter {
    let answered = false;
    const once = (): void => {
      if (answered) this.faults.push(`a waiter for ${name} heard twice`);
      answered = true;
      this.waiting.delete(waiter);
    };
    const waiter: Waiter = {
      granted: (generation) => {
        once();
        if (!this.loaded.has(name)) this.faults.push(`${name} was granted and is not loaded`);
        this.leases.push({ name, generation });
      },
      refused: (failure) => {
        once();
        this.refusals.push(failure);
      },
    };
    this.waiting.set(waiter, name);
    this.residency.wait(name, waiter, this.now, explicit);
    return waiter;
  }

  release(index: number): void {
    const [lease] = this.leases.splice(index % Math.max(1, this.leases.length), 1);
    if (lease !== undefined) this.residency.release(lease.name, lease.generation, this.now);
  }

  leave(index: number): void {
    const [waiter, name] = [...this.waiting][index % Math.max(1, this.waiting.size)] ?? [];
    if (waiter === undefined || name === undefined) return;
    this.waiting.delete(waiter);
    this.residency.leave(name, waiter, this.now);
  }

  finishLoad(good: boolean): void {
    for (const name of [...this.loading]) {
      this.loading.delete(name);
      if (good) {
        this.loaded.add(name);
        this.residency.loaded(name, this.now);
      } else this.residency.loadFailed(name, { kind: 'bad_model', message: 'It is damaged' }, this.now);
    }
  }

  finishUnload(): void {
    for (const name of [...this.unloading]) {
      this.unloading.delete(name);
      this.asked.delete(name);
      this.residency.gone(name, this.now);
    }
  }

  giveUp(name: string): void {
    if (!this.loaded.has(name)) return;
    this.asked.add(name);
    this.#drop(name);
    this.residency.gaveUp(name, { kind: 'engine_failure' }, this.now);
  }

  unload(name: string): void {
    if (this.loaded.has(name) || this.loading.has(name)) this.asked.add(name);
    this.residency.unload(name, this.now);
  }

  /** Nothing stands still: everybody who waits hears an end when loads, unloads and leases come to theirs. */
  settle(): void {
    for (let i = 0; i < 100 && (this.waiting.size > 0 || this.loading.size > 0 || this.unloading.size > 0); i++) {
      this.finishLoad(true);
      this.finishUnload();
      while (this.leases.length > 0) this.release(0);
    }
  }

  check(): void {
    assert.deepEqual(this.faults, []);
    this.residency.checkIntegrity();
    assert.deepEqual([...this.residency.resident()].sort(), this.#held().sort());
    for (const { name, generation } of this.leases) assert.ok(this.loaded.has(name) && generation > 0, `${name} is used and not loaded`);
  }

  #drop(name: string): void {
    for (let i = this.leases.length - 1; i >= 0; i--) if (this.leases[i]?.name === name) this.leases.splice(i, 1);
  }

  #held(): string[] {
    return [...this.loading, ...this.loaded, ...this.unloading];
  }

  #size(name: string): number {
    return this.sizes.get(name) ?? 1;
  }

  #lacks(name: string, gone: readonly string[]): string | null {
    const held = this.#held().filter((one) => one !== name && !gone.includes(one));
    const free = this.capacity - held.reduce((sum, one) => sum + this.#size(one), 0);
    return this.#size(name) <= free ? null : `needs ${this.#size(name)}, but ${free} are free`;
  }
}

const names = ['a', 'b', 'c', 'p'] as const;
const name = fc.constantFrom(...names);
const action = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('want' as const), name, explicit: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('release' as const), index: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('leave' as const), index: fc.nat(9) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('finishLoad' as const), good: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('finishUnload' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('giveUp' as const), name }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('unload' as const), name }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('expire' as const), ms: fc.nat(200) }) },
);

test('whatever happens, nothing in use or pinned makes room, no bound is broken, and each waiter hears one end', () => {
  fc.assert(
    fc.property(fc.array(action, { maxLength: 60 }), fc.integer({ min: 1, max: 4 }), (actions, maxLoaded) => {
      const world = new World();
      world.maxLoaded = maxLoaded;
      for (const one of actions) {
        world.now += 10;
        if (one.do === 'want') world.want(one.name, one.explicit);
        else if (one.do === 'release') world.release(one.index);
        else if (one.do === 'leave') world.leave(one.index);
        else if (one.do === 'finishLoad') world.finishLoad(one.good);
        else if (one.do === 'finishUnload') world.finishUnload();
        else if (one.do === 'giveUp') world.giveUp(one.name);
        else if (one.do === 'unload') world.unload(one.name);
        else {
          world.now += one.ms;
          world.residency.expire(world.now);
        }
        world.check();
      }
      world.settle();
      world.check();
      assert.equal(world.waiting.size, 0, 'somebody waits for ever');
    }),
    { numRuns: 400 },
  );
});

describe('a model', () => {
  test('makes room when it is the one unused for longest', () => {
    const world = new World();
    world.maxLoaded = 2;
    for (const one of ['a', 'b']) {
      world.now += 10;
      world.want(one);
      world.finishLoad(true);
      world.release(0);
    }
    world.now += 10;
    world.want('a');
    world.release(0);
    world.want('c');
    assert.deepEqual([...world.unloading], ['b']);
    world.finishUnload();
    assert.deepEqual([...world.loading], ['c']);
  });

  test('in use keeps another waiting, takes no more, and is asked for again afterwards', () => {
    const world = new World();
    world.maxLoaded = 1;
    world.want('a');
    world.finishLoad(true);
    world.want('b');
    world.want('a');
    assert.deepEqual([world.leases.length, world.waiting.size], [1, 2]);
    world.release(0);
    world.finishUnload();
    world.finishLoad(true);
    assert.deepEqual(
      world.leases.map((lease) => lease.name),
      ['b'],
    );
    world.settle();
    assert.deepEqual([...world.loaded], ['a']);
  });

  test('that had to make room stays when nobody wants that any more', () => {
    const world = new World();
    world.maxLoaded = 1;
    world.want('a');
    world.finishLoad(true);
    world.want('b');
    world.want('a');
    world.leave(0);
    assert.deepEqual([world.leases.length, world.waiting.size], [2, 0]);
  });

  test('that is pinned is named where nothing else can leave', () => {
    const world = new World();
    world.maxLoaded = 1;
    world.want('p');
    world.finishLoad(true);
    world.release(0);
    world.want('a');
    assert.match(
      world.refusals[0]?.message ?? '',
      /^The model "a" would be one more than models\.max_loaded = 1; unload "p" \(pinned\) first$/,
    );
    world.residency.expire(1e9);
    assert.deepEqual([...world.loaded], ['p']);
  });

  test('that is too large is refused, and nothing is unloaded for it', () => {
    const world = new World();
    world.capacity = 2;
    world.want('a');
    world.finishLoad(true);
    world.release(0);
    world.want('c');
    assert.equal(world.refusals[0]?.message, 'The model "c" needs 3, but 2 are free');
    assert.deepEqual([...world.loaded], ['a']);
  });

  test('that failed is tried again by order, or by a request after a minute', () => {
    const world = new World();
    world.want('b');
    world.finishLoad(false);
    world.want('b');
    assert.deepEqual([world.refusals.length, world.loading.size], [2, 0]);
    world.want('b', true);
    assert.equal(world.loading.size, 1);
    world.finishLoad(false);
    world.now += 60_000;
    world.want('b');
    assert.equal(world.loading.size, 1);
  });

  test('that was loaded by a request leaves when it is unused, one of the start does not', () => {
    const world = new World();
    for (const one of ['a', 'b']) {
      world.want(one);
      world.finishLoad(true);
      world.release(0);
    }
    world.residency.expire(100);
    assert.deepEqual([[...world.loaded], [...world.unloading]], [['a'], ['b']]);
  });

  test('is waited for by so many at most', () => {
    const world = new World();
    for (let i = 0; i < 7; i++) world.want('b');
    assert.deepEqual(
      world.refusals.map(({ kind }) => kind),
      ['overloaded'],
    );
  });
});
