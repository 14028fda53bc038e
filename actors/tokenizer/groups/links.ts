/**
 * The engine groups as a tokenizer sees them: a link to the scheduler of each, while it lives, and the choice of one for a request
 * (actors/routing/router.ts). Event loop of the tokenizer's thread; made by ../host.ts.
 */
import type { GroupPlace, LinkEnd } from '../../messages/control.js';
import { BoardReader } from '../../routing/board.js';
import { OnTheWay } from '../../routing/on-the-way.js';
import { type Candidate, Router } from '../../routing/router.js';
import { EventLink } from '../../runtime/mailbox.js';
import type { FromScheduler, Group, Placed, ToScheduler } from './group.js';

class LinkedGroup implements Group {
  readonly index: number;
  alive = true;
  readonly candidate: Candidate | null;
  readonly link: EventLink<FromScheduler, ToScheduler>;
  readonly #onTheWay: OnTheWay;

  constructor({ index, board, taken }: GroupPlace, end: LinkEnd, onMessage: (message: FromScheduler, group: Group) => void) {
    this.index = index;
    const onTheWay = new OnTheWay(taken);
    this.#onTheWay = onTheWay;
    this.candidate =
      board === null
        ? null
        : {
            board: new BoardReader(board),
            get onTheWay() {
              return onTheWay.now();
            },
          };
    this.link = new EventLink(end, (message) => onMessage(message, this));
  }

  post(message: ToScheduler): void {
    if (message.k === 'admit') this.#onTheWay.send(message.newTokens ?? 0);
    this.link.post(message);
  }
}

export class Groups {
  readonly #onMessage: (message: FromScheduler, group: Group) => void;
  readonly #router: Router;
  /** Those that live, by index. */
  readonly #linked = new Map<number, LinkedGroup>();

  constructor(blockSize: number, onMessage: (message: FromScheduler, group: Group) => void) {
    this.#router = new Router(blockSize);
    this.#onMessage = onMessage;
  }

  get none(): boolean {
    return this.#linked.size === 0;
  }

  connect(place: GroupPlace, end: LinkEnd): Group {
    const group = new LinkedGroup(place, end, this.#onMessage);
    this.#linked.set(place.index, group);
    return group;
  }

  /** Returns the group that was there; nobody reads its link any more. */
  disconnect(index: number): Group | null {
    const group = this.#linked.get(index);
    if (group === undefined) return null;
    this.#linked.delete(index);
    group.alive = false;
    group.link.close();
    return group;
  }

  /** The group for a new request; null while there is none. */
  place(promptIds: Int32Array, adapter?: number): Placed | null {
    const linked = [...this.#linked.values()];
    const candidates = linked.flatMap(({ candidate }) => candidate ?? []);
    const [first] = linked;
    if (first === undefined) return null;
    if (candidates.length !== linked.length) return { group: first };
    const { index, newTokens } = this.#router.choose(candidates, promptIds, adapter);
    return { group: linked[index] ?? first, newTokens };
  }

  setPaused(paused: boolean): void {
    for (const { link } of this.#linked.values()) link.setPaused(paused);
  }

  close(): void {
    for (const index of [...this.#linked.keys()]) this.disconnect(index);
  }
}
