/**
 * The soak as a command: `node dist/test/e2e/soak/soak.js --seconds 600 --clients 24 [--mode threads|signals|both] [--seed N] [--json]`.
 * Prints the figures as a table, or as JSON, and exits with 1 when a rule was broken.
 */
import { parseArgs } from 'node:util';
import { runSoak } from './run.js';
import type { Mode } from './target.js';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    clients: { type: 'string', default: '24' },
    mode: { type: 'string', default: 'both' },
    seed: { type: 'string', default: String(Date.now() % 2 ** 31) },
    json: { type: 'boolean', default: false },
  },
});

function numberOf(name: 'seconds' | 'clients' | 'seed', least: number): number {
  const value = Number(values[name]);
  if (Number.isInteger(value) && value >= least) return value;
  process.stderr.write(`--${name} takes a whole number of at least ${least}.\n`);
  process.exit(64);
}

const modes: ReadonlyMap<string, readonly Mode[]> = new Map([
  ['threads', ['threads']],
  ['signals', ['signals']],
  ['both', ['threads', 'signals']],
]);
const chosen = modes.get(values.mode);
if (chosen === undefined) {
  process.stderr.write('--mode takes threads, signals or both.\n');
  process.exit(64);
}
const seed = numberOf('seed', 0);
const figures = await runSoak({
  seconds: numberOf('seconds', 1),
  clients: numberOf('clients', 1),
  modes: chosen,
  seed,
  onProgress: (line) => process.stderr.write(`${line}\n`),
});
process.stdout.write(values.json ? `${JSON.stringify({ seed, ...figures.toJSON() }, null, 2)}\n` : `seed ${seed}\n${figures.table()}`);
process.exit(figures.numViolations === 0 ? 0 : 1);
