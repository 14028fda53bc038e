/** `inferd bench`: timings of the engine on this machine, each beside what the machine allowed at that moment. */
import type { Verb } from '../verb.js';
import { benchForward } from './forward.js';
import { benchOps } from './ops.js';

export const bench: Verb = {
  name: 'bench',
  summary: 'time the engine against the limits of this machine',
  examples: ['inferd bench forward', 'inferd bench ops'],
  verbs: [benchForward, benchOps],
};
