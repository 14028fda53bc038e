/** `inferd eval TEXT --compare MODEL` with the demo model and its quantized forms, on a text that it knows. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { DivergenceReport } from '../../../../daemon/cli/eval/divergence.js';
import { fixture } from '../../../helpers/native/native-engine.js';
import { commandLine } from '../command-line.js';

const folder = mkdtempSync(join(tmpdir(), 'inferd-compare-'));
after(() => rmSync(folder, { recursive: true }));
const run = commandLine({ ...process.env, XDG_CONFIG_HOME: folder });

/** Stories that the model was trained to tell. */
const text = join(folder, 'stories.txt');
writeFileSync(
  text,
  readFileSync(fixture('eval', 'demo.jsonl'), 'utf8')
    .split('\n')
    .filter((line) => line.includes('"story"'))
    .map((line) => (JSON.parse(line) as { want: string }).want)
    .join('\n'),
);

async function report(...args: string[]): Promise<DivergenceReport> {
  const { code, stdout, stderr } = await run('eval', text, '--compare', 'demo', '--window', '64', '--json', ...args);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as DivergenceReport;
}

test('a model is the same as itself at every token', async () => {
  const { kl, same_top: same, tokens, perplexity, other_perplexity: other } = await report('--n', '3');
  assert.deepEqual([kl.max, same, perplexity], [0, 1, other]);
  assert.equal(tokens, 3 * 64);
});

test('8 bits lose less than 4, and a stored format is compared with what it was made from', async (t) => {
  const eight = await report('--set', 'inference.quantization=int8');
  const four = await report('--model', fixture('golden', 'quant-demo-q4k', 'model.gguf'));
  t.diagnostic(`int8 ${eight.kl.mean.toExponential(2)} ${eight.same_top}, Q4_K_S ${four.kl.mean.toExponential(2)} ${four.same_top}`);
  assert.equal(eight.tokens, four.tokens);
  assert.ok(eight.kl.mean > 0 && eight.kl.mean < four.kl.mean);
  assert.ok(eight.same_top > four.same_top && four.same_top > 0.5);
});

test('the table names both models and their formats', async () => {
  const { stdout } = await run('eval', text, '--compare', 'demo', '--n', '1', '--set', 'inference.quantization=int8');
  assert.match(stdout, /tokens +same top +KL mean/);
  assert.match(stdout, /demo \(BF16 as int8\) against demo \(BF16\)/);
});

test('models of two vocabularies, texts that are not there and empty ones are refused', async () => {
  const pack = fixture('golden', 'llama3.1-gqa');
  const [two, none, empty] = [
    await run('eval', text, '--compare', pack),
    await run('eval', join(folder, 'none.txt'), '--compare', 'demo'),
    await run('eval', '/dev/null', '--compare', 'demo'),
  ];
  assert.deepEqual([two.code, none.code, empty.code], [64, 66, 65]);
  assert.match(two.stderr, /demo has 4096 tokens and .* 320; compare models of one vocabulary/);
  assert.match(none.stderr, /none\.txt cannot be read \(ENOENT\)/);
  assert.match(empty.stderr, /The text is empty/);
});

test('options that would change nothing are refused', async () => {
  const [concurrency, window] = [
    await run('eval', text, '--compare', 'demo', '--concurrency', '2'),
    await run('eval', text, '--window', '64'),
  ];
  assert.deepEqual([concurrency.code, window.code], [64, 64]);
  assert.match(concurrency.stderr, /--concurrency is of no use with --compare; leave it out/);
  assert.match(window.stderr, /--window is of no use without --compare; leave it out/);
});
