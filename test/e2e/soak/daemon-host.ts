/**
 * A daemon in a process of its own whose threads can be killed from outside: `fork`ed by target.ts with the --set values as arguments
 * and the fault file in INFERD_SOAK_FAULT. Each message { kill, index } terminates one actor. Prints the same line when ready as
 * `inferd serve --json`.
 */
import type { ActorKind } from '../../../actors/runtime/entry.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/model-folder.js';
import { startDaemon } from '../../../daemon/daemon.js';
import { startEngine } from '../../../daemon/engine.js';
import { createLog } from '../../../daemon/log.js';

const engineModule = new URL('./faulty-engine.js', import.meta.url);
engineModule.searchParams.set('fault', process.env['INFERD_SOAK_FAULT'] ?? '');

const { config } = loadConfig({ sets: process.argv.slice(2) });
const daemon = await startDaemon({
  config,
  model: resolveModelFolder(config),
  log: createLog(config.log),
  publish: true,
  startEngine: (c, model, hooks) => startEngine(c, model, hooks, { executorModule: engineModule.href }),
});
process.on('message', ({ kill, index }: { readonly kill: ActorKind; readonly index: number }) => daemon.engine.killActor(kill, index));
process.stdout.write(`${JSON.stringify({ event: 'ready', ws: daemon.addresses.ws, http: daemon.addresses.http })}\n`);
process.exitCode = await daemon.stopped;
process.disconnect?.();
