/**
 * A daemon in a process of its own that can be looked into and harmed from outside: `fork`ed with the --set values as arguments. Prints
 * the same line when ready as `inferd serve --json`. Messages: { kill, index } terminates one actor; { probe } is answered with what
 * the main thread's event loop went through since the last one. INFERD_SOAK_FAULT names the fault file of faulty-engine.ts, if any.
 */
import type { ActorKind } from '../../../actors/runtime/entry.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/model-folder.js';
import { startDaemon } from '../../../daemon/daemon.js';
import { startEngine } from '../../../daemon/life/engine.js';
import { createLog } from '../../../daemon/log.js';
import { LoopProbe } from '../loop-probe.js';

type Message = { readonly kill: ActorKind; readonly index: number } | { readonly probe: true };

const fault = process.env['INFERD_SOAK_FAULT'];
const engineModule = new URL('./faulty-engine.js', import.meta.url);
engineModule.searchParams.set('fault', fault ?? '');

const probe = new LoopProbe();
const { config } = loadConfig({ sets: process.argv.slice(2) });
const daemon = await startDaemon({
  config,
  model: resolveModelFolder(config),
  log: createLog(config.log),
  publish: true,
  startEngine: (c, model, hooks) => startEngine(c, model, hooks, fault === undefined ? {} : { executorModule: engineModule.href }),
});
process.on('message', (message: Message) => {
  if ('probe' in message) process.send?.(probe.take());
  else daemon.engine.killActor(message.kill, message.index);
});
process.stdout.write(`${JSON.stringify({ event: 'ready', ws: daemon.addresses.ws, http: daemon.addresses.http })}\n`);
process.exitCode = await daemon.stopped;
process.disconnect?.();
