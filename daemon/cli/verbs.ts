/**
 * All verbs of the command line, in the order of the help. Each is loaded when it is asked for: together they import some two hundred
 * files, which took every command 0.1 s on a slow machine. A new verb is one file and one line here.
 */
import type { Verb } from './verb.js';

const loaders: Readonly<Record<string, () => Promise<Verb>>> = {
  serve: async () => (await import('./serve.js')).serve,
  run: async () => (await import('./run.js')).run,
  chat: async () => (await import('./chat.js')).chat,
  pull: async () => (await import('./models/pull.js')).pull,
  rm: async () => (await import('./models/rm.js')).rm,
  list: async () => (await import('./models/list.js')).list,
  load: async () => (await import('./models/load.js')).load,
  unload: async () => (await import('./models/load.js')).unload,
  adapter: async () => (await import('./models/adapter.js')).adapter,
  ps: async () => (await import('./ps.js')).ps,
  stop: async () => (await import('./stop.js')).stop,
  status: async () => (await import('./status.js')).status,
  service: async () => (await import('./service.js')).service,
  token: async () => (await import('./access/token.js')).token,
  key: async () => (await import('./access/key.js')).key,
  config: async () => (await import('./config.js')).config,
  doctor: async () => (await import('./doctor.js')).doctor,
  build: async () => (await import('./build.js')).build,
  bench: async () => (await import('./bench/bench.js')).bench,
  eval: async () => (await import('./eval/eval.js')).evaluate,
};

/** The verb that a command line begins with, alone; all of them where it begins with something else, such as "help" or a misspelt verb. */
export async function verbsFor(argv: readonly string[]): Promise<readonly Verb[]> {
  const [name = ''] = argv;
  const only = Object.hasOwn(loaders, name) ? loaders[name] : undefined;
  return only === undefined ? allVerbs() : [await only()];
}

export function allVerbs(): Promise<readonly Verb[]> {
  return Promise.all(Object.values(loaders).map((load) => load()));
}
