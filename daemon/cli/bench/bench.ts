/** `inferd bench`: timings of the engine beside what the machine allowed at that moment, of all prompts at once, and of a server under load. */
import type { Verb } from '../verb.js';
import { benchForward } from './forward.js';
import { benchOffline } from './offline/offline.js';
import { benchOps } from './ops.js';
import { benchServe } from './serve/serve.js';

export const bench: Verb = {
  name: 'bench',
  summary: 'time the engine against the limits of this machine, a list of prompts, or a server under load',
  examples: ['inferd bench serve', 'inferd bench offline', 'inferd bench forward', 'inferd bench ops'],
  verbs: [benchServe, benchOffline, benchForward, benchOps],
};
