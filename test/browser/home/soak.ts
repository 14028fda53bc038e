/**
 * The page at / open for long while the daemon works: `node dist/test/browser/home/soak.js [MINUTES]`, 10 when not said. It goes round its
 * parts, chats and clears; in each turn, before it leaves the board, the JavaScript heap (after a collection) and the nodes of the document
 * are written down. The chat is cleared every fourth turn, so that whole rounds of four are alike, and halves are made of whole rounds.
 * Exit code 1 when the second half needed more than the first, or the page complained. Not part of the tests: it takes its time.
 */
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { Browser } from '../browser.js';
import { Home } from './home.js';
import { startLoad } from './load.js';

const minutes = Number(process.argv[2] ?? 10);
/** Turns until the chat is cleared; a sample each. */
const ROUND = 4;
/** What may come and go between two collections. */
const HEAP_SLACK = 1_500_000;
const NODES_SLACK = 300;

interface Sample {
  readonly atS: number;
  readonly heapBytes: number;
  readonly nodes: number;
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

async function stay(part: string, ms: number): Promise<void> {
  await browser.value(`location.hash = '#/${part}'`);
  const until = elapsed() + ms;
  while (elapsed() < until) await new Promise((resolve) => setTimeout(resolve, 250));
}

async function weigh(): Promise<void> {
  const sample = { atS: Math.round(elapsed() / 1000), ...(await browser.weight()) };
  samples.push(sample);
  process.stdout.write(`${sample.atS} s  ${(sample.heapBytes / 1e6).toFixed(2)} MB  ${sample.nodes} nodes\n`);
}

await home.open('board');
await home.set('Temperature', '1');
await home.set('Max tokens', '120');
await home.check('Show token probabilities');
while (elapsed() < minutes * 60_000) {
  await stay('board', 12_000);
  await weigh();
  await stay('chat', 100);
  await home.say('Tell me a story about a fox.');
  await home.answered();
  if (++turns % ROUND === 0) await home.press('Clear');
  await stay('requests', 4_000);
  await browser.value("[...document.querySelectorAll('.list .rows a')].at(-1)?.click()");
  await stay('models', 2_500);
}
const complaints = [...browser.complaints];
await stop();
await browser.close();
await at.close();

const half = ROUND * Math.floor(samples.length / ROUND / 2);
const most = (list: readonly Sample[], key: 'heapBytes' | 'nodes'): number => Math.max(0, ...list.map((sample) => sample[key]));
const [first, second] = [samples.slice(0, half), samples.slice(samples.length - half)];
const grown = most(second, 'heapBytes') - most(first, 'heapBytes');
const more = most(second, 'nodes') - most(first, 'nodes');
process.stdout.write(
  `${turns} turns; second half: heap ${(grown / 1e6).toFixed(2)} MB over the first, nodes ${more}; ${complaints.length} complaints\n`,
);
if (half === 0) process.stdout.write(`too short: ${2 * ROUND} samples are needed\n`);
for (const complaint of complaints.slice(0, 5)) process.stdout.write(`${complaint}\n`);
process.exitCode = half === 0 || grown > HEAP_SLACK || more > NODES_SLACK || complaints.length > 0 ? 1 : 0;
