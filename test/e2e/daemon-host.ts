/**
 * A daemon in a process of its own whose engine may be another module, and which can be looked into and harmed from outside: started with
 * the --set values as arguments; INFERD_TEST_ENGINE names the module, if any. Prints the same line when ready as `inferd serve --json`.
 *
 * `fork`ed, it takes messages: { kill, index } terminates one actor; { probe } is answered with what the main thread's event loop went
 * through since the last one, { collect } when the garbage of all its threads is collected. Then nothing may keep its process when the daemon has stopped; else it ends as the command does.
 */
import type { ActorKind } from '../../actors/runtime/entry.js';
import { loadConfig } from '../../config/load.js';
import { resolveModelFolder } from '../../config/models/model-folder.js';
import { startDaemon } from '../../daemon/daemon.js';
import { startEngine } from '../../daemon/life/engine.js';
import { createLog } from '../../daemon/log.js';
import { collectAllGarbage } from '../helpers/daemon/collect-garbage.js';
import { LoopProbe } from './loop-probe.js';

type Message = { readonly kill: ActorKind; readonly index: number } | { readonly probe: true } | { readonly collect: true };

const forked = process.disconnect !== undefined;
const probe = forked ? new LoopProbe() : null;
const executorModule = process.env['INFERD_TEST_ENGINE'];
const { config } = loadConfig({ sets: process.argv.slice(2) });
const daemon = await startDaemon({
  config,
  model: resolveModelFolder(config),
  log: createLog(config.log),
  publish: true,
  startEngine: (c, model, hooks) => startEngine(c, model, hooks, executorModule === undefined ? {} : { executorModule }),
});
if (forked) {
  process.on('message', (message: Message) => {
    if ('probe' in message) process.send?.(probe?.take());
    else if ('collect' in message) {
      void collectAllGarbage().then(() => process.send?.('collected'));
    } else daemon.engine.killActor(message.kill, message.index);
  });
}
process.stdout.write(`${JSON.stringify({ event: 'ready', ws: daemon.addresses.ws, http: daemon.addresses.http })}\n`);
const code = await daemon.stopped;
if (!forked) process.exit(code);
process.exitCode = code;
process.disconnect();
