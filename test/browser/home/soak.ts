/**
 * The page at / open for long while the daemon works: `node dist/test/browser/home/soak.js [MINUTES]`, 10 when not said. It goes round its
 * parts, chats and clears; each half minute the JavaScript heap (after a collection) and the nodes of the document are written down.
 * Exit code 1 when the second half needed more than the first, or the page complained. Not part of the tests: it takes its time.
 */
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { Browser } from '../browser.js';
import { Home } from './home.js';
import { startLoad } from './load.js';

const minutes = Number(process.argv[2] ?? 10);
const SAMPLE_MS = 30_000;
/** What may come and go between two collections. */
const HEAP_SLACK = 1_500_000;
const NODES_SLACK = 300;

interface Sample {
  readonly atS: number;
  readonly heapBytes: number;
  readonly nodes: number;
  readonly part: string;
}

const at = await startTestDaemon(['scheduler.max_num_sequences=8', 'cache.num_gpu_blocks_override=1200']);
const browser = await Browser.start();
await browser.look(1360, 900, 'light');
const home = new Home(browser, at.http);
const stop = await startLoad(at, 10, 80);
const samples: Sample[] = [];
const began = performance.now();
const elapsed = (): number => performance.now() - began;
let turns = 0;

/** Stays in a part for a while, and weighs the page when it is time to. */
async function stay(part: string, ms: number): Promise<void> {
  await browser.value(`location.hash = '#/${part}'`);
  const until = elapsed() + ms;
  while (elapsed() < until) await new Promise((resolve) => setTimeout(resolve, 250));
  if (elapsed() < (samples.length + 1) * SAMPLE_MS) return;
  const { heapBytes, nodes } = await browser.weight();
  samples.push({ atS: Math.round(elapsed() / 1000), heapBytes, nodes, part });
  process.stdout.write(`${samples.at(-1)?.atS} s  ${(heapBytes / 1e6).toFixed(2)} MB  ${nodes} nodes  ${part}\n`);
}

await home.open('board');
await home.set('Temperature', '1');
await home.set('Max tokens', '120');
await home.check('Show token probabilities');
while (elapsed() < minutes * 60_000) {
  await stay('board', 12_000);
  await stay('chat', 100);
  await home.say('Tell me a story about a fox.');
  await home.answered();
  if (++turns % 4 === 0) await home.press('Clear');
  await stay('requests', 4_000);
  await browser.value("[...document.querySelectorAll('.list .rows a')].at(-1)?.click()");
  await stay('models', 2_500);
}
const complaints = [...browser.complaints];
await stop();
await browser.close();
await at.close();

const half = Math.floor(samples.length / 2);
const most = (list: readonly Sample[], key: 'heapBytes' | 'nodes'): number => Math.max(0, ...list.map((sample) => sample[key]));
const [first, second] = [samples.slice(0, half), samples.slice(half)];
const grown = most(second, 'heapBytes') - most(first, 'heapBytes');
const more = most(second, 'nodes') - most(first, 'nodes');
process.stdout.write(
  `${turns} turns; second half: heap ${(grown / 1e6).toFixed(2)} MB over the first, nodes ${more}; ${complaints.length} complaints\n`,
);
for (const complaint of complaints.slice(0, 5)) process.stdout.write(`${complaint}\n`);
process.exitCode = half === 0 || grown > HEAP_SLACK || more > NODES_SLACK || complaints.length > 0 ? 1 : 0;
