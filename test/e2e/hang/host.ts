/**
 * A daemon in a process of its own whose engine is another module: started with the --set values as arguments, INFERD_TEST_ENGINE names the
 * module. Prints the same line when ready as `inferd serve --json`, and ends as the command does.
 */
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/model-folder.js';
import { startDaemon } from '../../../daemon/daemon.js';
import { startEngine } from '../../../daemon/life/engine.js';
import { createLog } from '../../../daemon/log.js';

const executorModule = process.env['INFERD_TEST_ENGINE'] ?? '';
const { config } = loadConfig({ sets: process.argv.slice(2) });
const daemon = await startDaemon({
  config,
  model: resolveModelFolder(config),
  log: createLog(config.log),
  publish: true,
  startEngine: (c, model, hooks) => startEngine(c, model, hooks, { executorModule }),
});
process.stdout.write(`${JSON.stringify({ event: 'ready', ws: daemon.addresses.ws, http: daemon.addresses.http })}\n`);
const code = await daemon.stopped;
process.exit(code);
