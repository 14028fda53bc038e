/**
 * How many tokens are drafted for whom. Runs in the scheduler thread; pure arithmetic. It decides nothing but speed: a draft is only kept
 * where the sampler draws the same token anyway.
 *
 * A step that reads all weights has room for some rows that cost little, and each draft is one of them. So the longer the batch, the fewer
 * drafts a sequence gets; and of one sequence a further draft is worth its row as long as the chance that all up to it are accepted exceeds
 * what a row costs. That chance is estimated from how its drafts fared: an exponential mean over the last 64. A sequence whose drafts are not
 * worth it decodes plainly and tries again after a while, which doubles each time that this comes to nothing.
 */

/** What the scheduler knows of speculation; from `[speculative]` of the configuration. */
export interface DraftOptions {
  /** Drafts of a sequence in a step, at most. */
  readonly maxTokens: number;
  /** Nobody drafts when more sequences run. */
  readonly maxBatch: number;
  /** What one more row costs, and the making of its draft, as a share of a step of one row. */
  readonly rowCost: number;
  /** Rows of a step that cost little more than one: those up to which its time is that of reading the weights. */
  readonly freeRows: number;
  /** Drafts come from a network, which keeps keys and values behind the history: their blocks have to be there. */
  readonly inBlocks: boolean;
}

/** Answers how many drafts a sequence gets; tests have others. */
export type DraftLength = (history: DraftHistory, batch: number) => number;

/** Rate of a sequence that nothing is known of, at first and when it tries again, and how many drafts that guess is worth. */
const FIRST_RATE = 0.7;
const FIRST_WEIGHT = 4;
const RETRY_WEIGHT = 1;
const MEMORY = 64;
/** Tokens that a sequence decodes plainly before its drafts are tried again, the first time and at most. */
const FIRST_PAUSE = 16;
const LONGEST_PAUSE = 256;

/** How the drafts of one sequence have fared. */
export class DraftHistory {
  accepted = 0;
  rejected = 0;
  /** Estimated chance of a draft to be accepted when those before it are. */
  private rate = FIRST_RATE;
  private weight = FIRST_WEIGHT;
  private plainTokens = 0;
  private pause = FIRST_PAUSE;

  /** A step asked for `asked` drafts, compared `drafted` of them, and `accepted` of these led on. */
  note(asked: number, drafted: number, accepted: number): void {
    if (asked === 0) {
      this.plainTokens++;
      return;
    }
    this.accepted += accepted;
    this.rejected += drafted - accepted;
    if (accepted > 0) this.pause = FIRST_PAUSE;
    for (let i = 0; i < accepted; i++) this.observe(1);
    // For want of a draft a row was computed in vain, too.
    if (accepted < asked) this.observe(0);
  }

  /** The most drafts that are worth their rows. */
  worth(rowCost: number, most: number): number {
    const worth = Math.floor(Math.log(rowCost) / Math.log(Math.min(this.rate, 0.999)));
    if (worth > 0) {
      this.plainTokens = 0;
      return Math.min(worth, most);
    }
    if (this.plainTokens < this.pause) return 0;
    this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    this.rate = FIRST_RATE;
    this.weight = RETRY_WEIGHT;
    this.plainTokens = 0;
    return Math.min(1, most);
  }

  private observe(value: number): void {
    this.weight = Math.min(this.weight + 1, MEMORY);
    this.rate += (value - this.rate) / this.weight;
  }
}

/** The rule of the daemon. */
export function adaptiveLength({ maxTokens, maxBatch, rowCost, freeRows }: DraftOptions): DraftLength {
  return (history, batch) => {
    if (batch > maxBatch) return 0;
    const most = Math.min(maxTokens, Math.floor(freeRows / Math.max(1, batch)) - 1);
    return most < 1 ? 0 : history.worth(rowCost, most);
  };
}
