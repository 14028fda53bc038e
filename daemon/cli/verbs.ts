/** All verbs of the command line, in the order of the help. A new verb is one file and one line here. */

import { key } from './access/key.js';
import { token } from './access/token.js';
import { bench } from './bench/bench.js';
import { build } from './build.js';
import { chat } from './chat.js';
import { config } from './config.js';
import { doctor } from './doctor.js';
import { evaluate } from './eval/eval.js';
import { adapter } from './models/adapter.js';
import { list } from './models/list.js';
import { load, unload } from './models/load.js';
import { pull } from './models/pull.js';
import { rm } from './models/rm.js';
import { ps } from './ps.js';
import { run } from './run.js';
import { serve } from './serve.js';
import { service } from './service.js';
import { status } from './status.js';
import { stop } from './stop.js';
import type { Verb } from './verb.js';

export const verbs: readonly Verb[] = [
  serve,
  run,
  chat,
  pull,
  rm,
  list,
  load,
  unload,
  adapter,
  ps,
  stop,
  status,
  service,
  token,
  key,
  config,
  doctor,
  build,
  bench,
  evaluate,
];
