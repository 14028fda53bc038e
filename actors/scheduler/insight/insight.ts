/** What the scheduler remembers only for those who look: its last steps, and what happened to each request. Costs next to nothing meanwhile. */
import { StepRing } from './recent-steps.js';
import { Timelines } from './timelines.js';

export class Insight {
  readonly steps = new StepRing();
  readonly timelines: Timelines;

  constructor(keptTimelines: number) {
    this.timelines = new Timelines(keptTimelines);
  }
}
