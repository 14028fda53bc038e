/** `inferd bench` on the CPU: its plans cover each token once, its figures add up, and what a machine lacks is one plain sentence. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { opCases } from '../../../../daemon/cli/bench/op-cases.js';
import { admissionPlan, blocksOf, prefillPlans } from '../../../../daemon/cli/bench/plans.js';
import { backendNames } from '../../../../native/device-kinds.js';
import { loadAddon, packageRoot } from '../../../../native/index.js';
import { privateEnv } from '../../../helpers/daemon/daemon.js';
import { readPlan } from '../../../helpers/engine/plan-reader.js';
import { tempFolder } from '../../../helpers/temp-folder.js';

function inferd(args: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const command = [join(packageRoot(), 'daemon', 'cli', 'inferd.mjs'), 'bench', ...args];
  return new Promise((resolve) => {
    execFile(process.execPath, command, { env: privateEnv() }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
}

test('prefill plans run every token of every prompt once, in order, at most a chunk a step', () => {
  for (const [batch, length, chunk] of [
    [1, 1, 1],
    [3, 10, 7],
    [4, 8, 8],
    [2, 100, 64],
    [5, 3, 1000],
  ] as const) {
    const shape = { batch, length, steps: 4, blockSize: 16 };
    const next = new Array<number>(batch).fill(0);
    let sampled = 0;
    for (const plan of prefillPlans(shape, chunk)) {
      const { numTokens, samples, rows } = readPlan(plan);
      assert.ok(numTokens <= chunk);
      sampled += samples.length;
      for (const { slot, start, count } of rows) {
        assert.equal(start, next[slot], 'rows of a prompt follow each other');
        next[slot] = (next[slot] ?? 0) + count;
      }
    }
    assert.deepEqual(next, new Array<number>(batch).fill(length));
    assert.equal(sampled, batch);
    const admission = readPlan(admissionPlan(shape, 50, 0));
    assert.equal(admission.blockSets.length, blocksOf(shape));
    assert.equal(admission.numTokens, 0);
  }
});

test('bench forward reports prefill, decode and limits of every shape, and counts what the engine ran', async () => {
  const { code, stdout, stderr } = await inferd([
    'forward',
    '--shape',
    '1x40',
    '--shape',
    '3x20',
    '--repeat',
    '1',
    '--chunk',
    '16',
    '--json',
  ]);
  assert.equal(code, 0, stderr);
  const report = JSON.parse(stdout);
  assert.deepEqual(
    report.shapes.map((s: { batch: number; length: number }) => [s.batch, s.length]),
    [
      [1, 40],
      [3, 20],
    ],
  );
  for (const shape of report.shapes) {
    for (const step of [shape.prefill, shape.decode]) {
      assert.ok(step.ms > 0 && step.exec_ms > 0 && step.of_peak > 0 && step.of_read > 0);
      assert.ok(step.exec_ms < 2 * step.ms, 'the engine is not busy longer than it takes');
    }
    assert.ok(shape.limits.read_bytes > 0 && shape.limits.fma_flops > 0);
    assert.equal(shape.limits.gemm_flops, null);
  }
  assert.match(stderr, /1x40: prefill .* ms, decode step .* ms/);
});

test('bench forward counts the experts that a decode step read; dummy routers spread them', async () => {
  const shape = { hidden_size: 64, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 64, vocab_size: 512 };
  const router = { num_experts: 64, num_experts_per_tok: 4, moe_intermediate_size: 32, decoder_sparse_step: 1 };
  const config = { ...shape, ...router, architectures: ['Qwen3MoeForCausalLM'], num_hidden_layers: 3, max_position_embeddings: 128 };
  const folder = tempFolder();
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const args = ['forward', folder, '--load-dummy', '--shape', '1x16', '--shape', '16x16', '--steps', '2', '--repeat', '1'];
  const { code, stdout, stderr } = await inferd([...args, '--tp', '2', '--ep', '--json']);
  assert.equal(code, 0, stderr);
  const [one, many] = JSON.parse(stdout).shapes;
  assert.deepEqual(one.experts, { layers: 3, experts: 64, chosen: 4, distinct: 4 });
  const evenly = 64 * (1 - (1 - 4 / 64) ** 16);
  assert.ok(many.experts.distinct > 0.7 * evenly && many.experts.distinct <= 64, `${many.experts.distinct} of ${evenly} expected`);
  const told = await inferd(args);
  assert.match(told.stdout, /experts at 1x16: a decode step read 4\.0 of 64 in the mean of 3 layers, a token goes to 4\n/);
  const dense = await inferd(['forward', '--shape', '1x8', '--steps', '1', '--repeat', '1']);
  assert.doesNotMatch(dense.stdout, /experts/);
  assert.equal((await inferd([...args, '--ep'])).code, 64, 'one rank has all experts');
});

test('bench forward times steps whose sequences use adapters by turns', async () => {
  const { newSlots } = readPlan(admissionPlan({ batch: 5, length: 3, steps: 1, blockSize: 16, adapters: 2 }, 50, 0));
  assert.deepEqual(
    newSlots.map(({ adapter }) => adapter),
    [0, 1, 0, 1, 0],
  );
  const ask = (...lora: string[]) => inferd(['forward', '--shape', '3x8', '--steps', '1', '--repeat', '1', '--json', ...lora]);
  const { code, stdout, stderr } = await ask('--lora', '2', '--lora-rank', '5');
  assert.equal(code, 0, stderr);
  const report = JSON.parse(stdout);
  assert.deepEqual([report.adapters, report.adapter_rank], [2, 5]);
  assert.equal(JSON.parse((await ask()).stdout).adapters, undefined);
});

test('bench forward times ranks, or the share of one of them, and names a number that does not divide', async () => {
  const ask = (...ranks: string[]) => inferd(['forward', '--shape', '1x16', '--steps', '2', '--repeat', '1', ...ranks, '--json']);
  const all = JSON.parse((await ask('--tp', '2')).stdout);
  const share = JSON.parse((await ask('--tp-shape', '2')).stdout);
  for (const [shape] of [all.shapes, share.shapes]) assert.ok(shape.prefill.ms > 0 && shape.decode.ms > 0);
  assert.equal(share.parameters, all.parameters);
  assert.equal(2 * share.weight_bytes, all.weight_bytes);
  assert.match((await ask('--tp', '2', '--tp-shape', '2')).stderr, /--tp and --tp-shape do not go together/);
  const { code, stderr } = await ask('--tp', '3');
  assert.notEqual(code, 0);
  assert.match(stderr, /num_attention_heads is 4, which 3 does not divide/);
});

test('bench ops times the chosen ops, and every case is an op that the addon has', async () => {
  const { code, stdout } = await inferd(['ops', '--only', 'attention  ', '--repeat', '1', '--json']);
  assert.equal(code, 64, stdout);
  const some = await inferd(['ops', '--only', 'rms_norm 1 x', '--repeat', '1', '--json']);
  assert.equal(some.code, 0, some.stderr);
  const { ops } = JSON.parse(some.stdout);
  assert.deepEqual(
    ops.map((op: { op: string }) => op.op),
    ['rms_norm', 'add_rms_norm'],
  );
  assert.ok(ops.every((op: { us: number; of_read: number }) => op.us > 0 && op.of_read > 0));
  const names = new Set(loadAddon().opNames());
  for (const device of backendNames) for (const { op } of opCases(device)) assert.ok(names.has(op), op);
});

test('a device that is not there, and one that does not exist, are one sentence each', async () => {
  for (const verb of ['forward', 'ops']) {
    const wrong = await inferd([verb, '--device', 'tpu']);
    assert.equal(wrong.code, 64);
    assert.equal(wrong.stderr, `inferd: --device "tpu" is not allowed; expected ${backendNames.join(' or ')}\n`);
    const { problem } = loadAddon().systemInfo().cuda;
    if (problem === '') continue;
    const lacking = await inferd([verb, '--device', 'cuda']);
    assert.equal(lacking.code, 69);
    assert.match(lacking.stderr, /^inferd: [^\n]+\n$/);
  }
});
