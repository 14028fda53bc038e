/** What has become of drafts, over all sequences. Runs in the scheduler thread. */
import type { DraftCounts } from '../messages/calls.js';

/** Full samples between two lines of the log. */
const REPORT_SAMPLES = 1000;

/** Of what was drafted since the line before. */
export interface DraftReport {
  readonly drafted: number;
  readonly accepted: number;
  /** Share of the drafts that were accepted. */
  readonly rate: number;
  /** Tokens of a sample that had drafts. */
  readonly tokensPerSample: number;
}

export class DraftCounters {
  private drafts = 0;
  private draftTokens = 0;
  private acceptedTokens = 0;
  private told = { drafts: 0, draftTokens: 0, acceptedTokens: 0 };
  /** By position of the draft, from 0 on: how often it was accepted. */
  private readonly perPosition: number[];
  /** By number of drafts accepted, from 0 on: how many samples had so many. */
  private readonly histogram: number[];

  constructor(maxTokens: number) {
    this.perPosition = new Array<number>(maxTokens).fill(0);
    this.histogram = new Array<number>(maxTokens + 1).fill(0);
  }

  /** A sample compared `drafted` drafts, of which the first `accepted` were right. */
  note(drafted: number, accepted: number): void {
    this.drafts++;
    this.draftTokens += drafted;
    this.acceptedTokens += accepted;
    for (let i = 0; i < accepted; i++) this.perPosition[i] = (this.perPosition[i] ?? 0) + 1;
    this.histogram[accepted] = (this.histogram[accepted] ?? 0) + 1;
  }

  /** Once in so many draft tokens as 1,000 full samples have; null in between. */
  report(): DraftReport | null {
    const { drafts, draftTokens, acceptedTokens, told } = this;
    const drafted = draftTokens - told.draftTokens;
    if (drafted < REPORT_SAMPLES * this.perPosition.length) return null;
    const accepted = acceptedTokens - told.acceptedTokens;
    this.told = { drafts, draftTokens, acceptedTokens };
    return { drafted, accepted, rate: accepted / drafted, tokensPerSample: 1 + accepted / (drafts - told.drafts) };
  }

  snapshot(): DraftCounts {
    return {
      drafts_total: this.drafts,
      draft_tokens_total: this.draftTokens,
      accepted_tokens_total: this.acceptedTokens,
      accepted_per_position: [...this.perPosition],
      accepted_histogram: [...this.histogram],
    };
  }
}
