/**
 * The border between the engine and the CUDA backend, without a GPU: a stand-in for inferd_cuda.so beside a copy of the addon, in a
 * process of its own. Both sides must come from the same headers; what the README offers for a GPU is taken; nothing that steps need is
 * left to the first step.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, copyFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { topologyOf } from '../../../daemon/life/topology.js';
import { addonFile, type EngineOptions, type NativeModelInfo, packageRoot } from '../../../native/index.js';
import { engineOptions } from '../../helpers/native/native-engine.js';
import { tinyConfig, withModelFolder } from '../../helpers/native/tiny-model.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const native = join(packageRoot(), 'native');

/** Makes the header that holds the hash, from the headers of `folder`. @returns its text. */
function interfaceHeader(folder: string, to: string): string {
  const output = join(to, 'cuda_interface.h');
  const script = join(native, 'cuda_interface.cmake');
  execFileSync('cmake', [`-DINTERFACE_FOLDER=${folder}`, `-DINTERFACE_OUTPUT=${output}`, '-P', script]);
  return readFileSync(output, 'utf8');
}

/** A copy of the addon with a stand-in beside it. @returns the path of the copy. */
function standIn(...flags: readonly string[]): string {
  const folder = tempFolder();
  copyFileSync(addonFile(), join(folder, 'inferd.node'));
  interfaceHeader(native, folder);
  const source = join(packageRoot(), 'test', 'native', 'engine', 'stand_in_cuda.cpp');
  const common = ['-std=c++20', '-shared', '-fPIC', `-I${native}`, `-I${folder}`, '-o', join(folder, 'inferd_cuda.so'), source];
  execFileSync(process.env['CXX'] ?? 'c++', [...common, ...flags]);
  return join(folder, 'inferd.node');
}

/** Evaluates `body`, which sees `addon` and `input`, in a process that loads this addon. @returns its value. */
function inProcess<T>(addon: string, body: string, input: unknown = null): T {
  const script = `
    const [file, text] = process.argv.slice(1);
    const addon = require(file);
    const input = JSON.parse(text);
    console.log(JSON.stringify((() => { ${body} })()));`;
  const { status, stdout, stderr } = spawnSync(process.execPath, ['-e', script, addon, JSON.stringify(input)], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout) as T;
}

const problem = (addon: string): string => inProcess(addon, 'return addon.systemInfo().cuda.problem;');

/** Opens an engine, loads it and allocates 4 blocks. @returns its description, or what it said when it refused. */
const open = (addon: string, options: EngineOptions): { info?: NativeModelInfo; refusal?: string } =>
  inProcess(
    addon,
    `try {
       const engine = addon.createEngine(input);
       while (!engine.load(1 << 26).done);
       engine.allocateKv(4, 0);
       return { info: engine.info() };
     } catch (error) {
       return { refusal: error.code + ': ' + error.message };
     }`,
    options,
  );

describe('the interface of the CUDA backend', () => {
  test('is hashed over every header that crosses, and over no other', () => {
    const folder = tempFolder();
    for (const part of ['core', 'cuda']) cpSync(join(native, part), join(folder, part), { recursive: true });
    const out = join(folder, 'out');
    mkdirSync(out);
    const first = interfaceHeader(folder, out);
    assert.match(first, /kCudaInterface\[\] = "[0-9a-f]{16}"/);
    for (const file of ['cuda/rows/norm.h', 'core/trace.cpp', 'core/checkpoint/json.h']) appendFileSync(join(folder, file), '// more\n');
    assert.equal(interfaceHeader(folder, out), first);
    const seen = new Set([first]);
    for (const file of ['core/backend.h', 'core/tensor.h', 'core/error.h', 'core/plan/step_plan.h', 'cuda/library.h']) {
      appendFileSync(join(folder, file), '// more\n');
      seen.add(interfaceHeader(folder, out));
    }
    writeFileSync(join(folder, 'core', 'fresh.h'), '');
    seen.add(interfaceHeader(folder, out));
    assert.equal(seen.size, 7);
  });

  test('reaches no header that is not hashed', () => {
    const reached = new Set(['cuda/library.h']);
    for (const file of reached) {
      const includes = readFileSync(join(native, file), 'utf8').matchAll(/^#include "([^"]+)"/gm);
      for (const [, name = ''] of includes) {
        assert.match(name, /^core\/(plan\/)?[^/]+\.h$/, file);
        reached.add(name);
      }
    }
    assert.ok(reached.has('core/plan/step_plan.h'));
  });

  test('must be the same on both sides', () => {
    const other =
      /The CUDA backend \S+inferd_cuda\.so was built from other sources than the engine; run "npm run build", which builds both\.$/;
    assert.equal(problem(standIn()), '');
    for (const flag of ['-DSTAND_IN_INTERFACE="0123456789abcdef"', '-DSTAND_IN_OLDER']) {
      const addon = standIn(flag);
      assert.match(problem(addon), other);
      const { refusal } = open(addon, engineOptions(join(packageRoot(), 'config', 'demo-model'), { backend: 'cuda' }));
      assert.match(refusal ?? '', /^unsupported: /);
      assert.match(refusal ?? '', other);
    }
  });
});

describe('an engine on a device', () => {
  let addon: string;
  before(() => {
    addon = standIn();
  });

  for (const profile of ['demo', 'cpu-small', 'llama-3.1-8b']) {
    test(`takes the profile ${profile} with inference.device = "cuda", in each type that a GPU computes in`, () => {
      for (const dtype of ['auto', 'bf16', 'f16']) {
        const file = join(packageRoot(), 'config', `${profile}.toml`);
        const sets = ['inference.model_name=demo', 'inference.device=cuda', `inference.dtype=${dtype}`];
        const { config } = loadConfig({ file, sets, env: {} });
        const [[options] = []] = topologyOf(config, resolveModelFolder(config, {})).groups;
        assert.ok(options);
        const { info, refusal } = open(addon, options);
        assert.equal(refusal, undefined);
        const type = dtype === 'f16' ? 'f16' : 'bf16';
        assert.deepEqual([info?.dtype, info?.kvDtype], [type, type]);
      }
    });
  }

  test('refuses keys and values in a type that it does not have, in one sentence', () => {
    const options = engineOptions(join(packageRoot(), 'config', 'demo-model'), { backend: 'cuda', kvDtype: 'f32' });
    assert.match(open(addon, options).refusal ?? '', /^unsupported: .* as bf16, and f32 is asked for; set the cache's dtype to auto, bf16/);
  });

  test('refuses to quantize weights that it multiplies only as they are, in one sentence', () => {
    const options = engineOptions(join(packageRoot(), 'config', 'demo-model'), { backend: 'cuda', kvDtype: 'auto', quantization: 'int8' });
    const { refusal } = open(addon, options);
    assert.equal(refusal, 'unsupported: The backend stand-in cannot run this model: its weights are int8, and it keeps f16 and bf16.');
  });

  test('refuses to spread experts over ranks that attend to sequences of their own, in one sentence', () => {
    const experts = { architectures: ['Qwen3MoeForCausalLM'], num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16 };
    const ranks = { worldSize: 2, group: 1, commTimeoutMs: 1000, dpAttention: true };
    withModelFolder({ ...tinyConfig, ...experts, norm_topk_prob: true }, (folder) => {
      const options = engineOptions(folder, { backend: 'cuda', kvDtype: 'auto', loadDummy: true, ...ranks });
      assert.match(
        open(addon, options).refusal ?? '',
        /^unsupported: .* spreads no experts .* set parallel\.enable_dp_attention to false\.$/,
      );
    });
  });

  test('hands over all biases before the memory of steps is asked for, and so before the KV cache is sized', () => {
    const biases = (change: Record<string, unknown>): string | undefined =>
      withModelFolder({ ...tinyConfig, ...change }, (folder) => {
        const options = engineOptions(folder, { backend: 'cuda', kvDtype: 'auto', loadDummy: true });
        return open(addon, options).info?.backend;
      });
    assert.equal(biases({}), 'stand-in with 0 biases');
    assert.equal(biases({ architectures: ['Qwen2ForCausalLM'] }), 'stand-in with 2 biases', 'of q, k and v together, in two layers');
    assert.equal(biases({ attention_bias: true, mlp_bias: true }), 'stand-in with 8 biases');
  });
});
