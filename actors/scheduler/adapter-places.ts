/**
 * Which adapter lies in which place of the executors. Runs in the scheduler thread; used by roster.ts, which takes a place for each sequence
 * that gets a slot and gives it back with the slot.
 *
 * A place that no sequence uses keeps its adapter until another one needs it, the least recently used first; the plan that gives it
 * on carries the change (step.ts, ADAPTER), so executors upload in the order of steps and no step waits.
 */
import { BrokenInvariant } from '../runtime/invariant.js';

/** Of requests that use no adapter; adapters are numbered from 1 on, and a number is never used again. */
export const NO_ADAPTER_ID = 0;

export class AdapterPlaces {
  /** By place; NO_ADAPTER_ID where nothing was placed yet. */
  private readonly held: number[];
  /** Sequences that use each place. */
  private readonly users: number[];
  /** When each was given back last, in turns. */
  private readonly lastUsed: number[];
  private turn = 0;
  private readonly onPlaced: (place: number, adapter: number) => void;

  /** `onPlaced`: told of each place that gets another adapter, before the sequence that needs it. */
  constructor(numPlaces: number, onPlaced: (place: number, adapter: number) => void) {
    this.held = new Array<number>(numPlaces).fill(NO_ADAPTER_ID);
    this.users = new Array<number>(numPlaces).fill(0);
    this.lastUsed = new Array<number>(numPlaces).fill(0);
    this.onPlaced = onPlaced;
  }

  get size(): number {
    return this.held.length;
  }

  /** A sequence with this adapter could be given a place now. */
  hasRoomFor(adapter: number): boolean {
    return adapter === NO_ADAPTER_ID || this.find(adapter) !== -1;
  }

  /** The place of an adapter for one more sequence. @throws BrokenInvariant unless `hasRoomFor` */
  take(adapter: number): number {
    const place = this.find(adapter);
    if (place === -1) throw new BrokenInvariant('a sequence starts without a place for its adapter');
    if (this.held[place] !== adapter) {
      this.held[place] = adapter;
      this.onPlaced(place, adapter);
    }
    this.users[place]!++; // find gives a place
    return place;
  }

  /** One sequence less uses a place. */
  release(place: number): void {
    this.users[place]!--; // taken before
    this.lastUsed[place] = ++this.turn;
  }

  /** It is in no place any more, so that no plan counts on what executors forget. Only of one without users. */
  forget(adapter: number): void {
    const place = this.held.indexOf(adapter);
    if (place !== -1 && adapter !== NO_ADAPTER_ID) this.held[place] = NO_ADAPTER_ID;
  }

  /** @throws BrokenInvariant unless `placed`, the places of all running sequences, are what is counted, and each adapter has one place. */
  checkIntegrity(placed: Iterable<readonly [place: number, adapter: number]>): void {
    const counted = new Array<number>(this.size).fill(0);
    for (const [place, adapter] of placed) {
      if (this.held[place] !== adapter) throw new BrokenInvariant(`a sequence uses place ${place}, which holds another adapter`);
      counted[place]!++; // as above
    }
    for (const [place, users] of this.users.entries())
      if (counted[place] !== users) throw new BrokenInvariant(`place ${place} has a wrong number of users`);
    const all = this.held.filter((adapter) => adapter !== NO_ADAPTER_ID);
    if (new Set(all).size !== all.length) throw new BrokenInvariant('an adapter has two places');
  }

  /** Where it lies, else the place to give it: that of none, or the one unused for longest; -1 when all are in use. */
  private find(adapter: number): number {
    const there = this.held.indexOf(adapter);
    if (there !== -1) return there;
    let best = -1;
    for (let place = 0; place < this.size; place++) {
      if (this.users[place] !== 0) continue;
      if (best === -1 || this.lastUsed[place]! < this.lastUsed[best]!) best = place; // in range
    }
    return best;
  }
}
