/** What the engine is asked for: the profiles that are shipped, with the choices that the README offers. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { topologyOf, wantsCpu } from '../../../daemon/life/topology.js';
import { type EngineOptions, packageRoot } from '../../../native/index.js';
import { float8CacheScheme, withPackConfig } from '../../helpers/native/golden.js';

/** The engine of rank 0, for the demo model unless `sets` name another. */
function engineOf(profile: string, ...sets: readonly string[]): EngineOptions {
  const file = join(packageRoot(), 'config', `${profile}.toml`);
  const { config } = loadConfig({ file, sets: ['inference.model_name=demo', ...sets], env: {} });
  const [[options] = []] = topologyOf(config, resolveModelFolder(config, {})).groups;
  assert.ok(options);
  return options;
}

const profiles = ['demo', 'cpu-small', 'llama-3.1-8b', 'llama-3.1-70b-tp4'];

describe('a shipped profile', () => {
  for (const profile of profiles) {
    test(`${profile} leaves a GPU the type of keys and values, which must be that of the weights`, () => {
      for (const dtype of ['auto', 'bf16', 'f16']) {
        const { backend, kvDtype, weightDtype, quantization } = engineOf(profile, 'inference.device=cuda', `inference.dtype=${dtype}`);
        assert.deepEqual([backend, kvDtype, weightDtype, quantization], ['cuda', 'auto', dtype, 'none']);
      }
      assert.notEqual(engineOf(profile, 'inference.device=cuda').weightDtype, 'f32');
    });

    test(`${profile} runs on the CPU when told so, in a type that the CPU has`, () => {
      const { backend, kvDtype } = engineOf(profile, 'inference.device=cpu', 'inference.device_ids=[0]');
      assert.deepEqual([backend, kvDtype], ['cpu', 'f32'], 'exact for the demo model, which is small');
    });
  }
});

test('a GPU is left alone for what only the CPU has, and for nothing else', () => {
  const wants = (...sets: readonly string[]): boolean => wantsCpu(loadConfig({ sets, env: {} }).config);
  for (const set of ['inference.dtype=f32', 'cache.cache_dtype=f32']) assert.ok(wants(set), set);
  assert.ok(wants('parallel.enable_dp_attention=true', 'parallel.expert_parallel=true', 'parallel.data_parallel_size=2'));
  for (const type of ['none', 'int8', 'int4', 'fp8']) assert.ok(!wants(`inference.quantization=${type}`), type);
  for (const type of ['auto', 'bf16', 'fp8', 'int8']) assert.ok(!wants(`cache.cache_dtype=${type}`), type);
});

test('what is asked of keys and values is passed on', () => {
  for (const device of ['cuda', 'cpu'])
    for (const type of ['fp8', 'int8', 'bf16'])
      assert.equal(engineOf('demo', `inference.device=${device}`, `cache.cache_dtype=${type}`).kvDtype, type);
});

test('a model whose kv_cache_scheme asks for 8-bit floats gets them on the CPU where nothing else is said', () => {
  withPackConfig('llama3.1-gqa', float8CacheScheme, (folder) => {
    const typeOf = (...sets: readonly string[]): string => {
      const { config } = loadConfig({ sets: [`inference.model_name=${folder}`, ...sets], env: {} });
      return topologyOf(config, resolveModelFolder(config, {})).groups[0]?.[0]?.kvDtype ?? '';
    };
    assert.deepEqual([typeOf('inference.device=cpu'), typeOf('inference.device=cuda')], ['fp8', 'auto']);
    assert.equal(typeOf('inference.device=cpu', 'cache.cache_dtype=f32'), 'f32');
  });
});

test('ranks are told to share experts out', () => {
  const sets = ['inference.device=cpu', 'parallel.tensor_parallel_size=2'];
  assert.deepEqual(
    [engineOf('demo', ...sets), engineOf('demo', ...sets, 'parallel.expert_parallel=true')].map((o) => o.expertParallel),
    [false, true],
  );
});

test('ranks on GPUs know how they add up and which GPUs their group has; others are told nothing', () => {
  const sets = [
    'inference.device=cuda',
    'inference.device_ids=[2,3,6,7]',
    'parallel.tensor_parallel_size=2',
    'parallel.data_parallel_size=2',
  ];
  const { config } = loadConfig({ sets: ['inference.model_name=demo', 'parallel.all_reduce=nccl', ...sets], env: {} });
  const { groups } = topologyOf(config, resolveModelFolder(config, {}));
  assert.deepEqual(
    groups.map((ranks) => ranks.map(({ allReduce, rankDevices }) => [allReduce, rankDevices])),
    [
      [
        ['nccl', [2, 3]],
        ['nccl', [2, 3]],
      ],
      [
        ['nccl', [6, 7]],
        ['nccl', [6, 7]],
      ],
    ],
  );
  for (const others of [['inference.device=cuda'], ['inference.device=cpu', 'parallel.tensor_parallel_size=2']])
    assert.equal('rankDevices' in engineOf('demo', ...others), false);
});

test('threads look before they sleep for as long as they are told, and not at all by themselves', () => {
  const told = (...sets: string[]): number => {
    const { config } = loadConfig({ sets: ['inference.device=cpu', ...sets], env: {} });
    return topologyOf(config, resolveModelFolder(config, {})).spinUs;
  };
  assert.deepEqual([told(), told('scheduler.spin_us=50')], [0, 50]);
});

describe('several groups', () => {
  const groupsOf = (...sets: readonly string[]): readonly (readonly EngineOptions[])[] => {
    const { config } = loadConfig({ sets: ['inference.model_name=demo', ...sets], env: {} });
    return topologyOf(config, resolveModelFolder(config, {})).groups;
  };

  test('take GPUs in the order of their ranks', () => {
    const sets = ['inference.device=cuda', 'inference.device_ids=[4,5,6,7]', 'parallel.tensor_parallel_size=2'];
    assert.deepEqual(
      groupsOf(...sets, 'parallel.data_parallel_size=2').map((ranks) => ranks.map(({ deviceId, rank }) => [deviceId, rank])),
      [
        [
          [4, 0],
          [5, 1],
        ],
        [
          [6, 0],
          [7, 1],
        ],
      ],
    );
  });

  test('that share experts are ranks of one model, each alone in its group', () => {
    const shared = ['parallel.enable_dp_attention=true', 'parallel.expert_parallel=true', 'parallel.data_parallel_size=3'];
    const sets = ['inference.threads=6', ...shared];
    assert.deepEqual(
      groupsOf('inference.device=auto', ...sets).map((ranks) =>
        ranks.map(({ backend, rank, worldSize, dpAttention, threads }) => [backend, rank, worldSize, dpAttention, threads]),
      ),
      // The backend divides its threads by the ranks.
      [0, 1, 2].map((rank) => [['cpu', rank, 3, true, 6]]),
    );
  });

  test('divide the threads of a CPU, and have one each at least', () => {
    const threads = (count: number, groups: number): number[] =>
      groupsOf('inference.device=cpu', `inference.threads=${count}`, `parallel.data_parallel_size=${groups}`).flatMap((ranks) =>
        ranks.map((rank) => rank.threads),
      );
    assert.deepEqual(threads(8, 2), [4, 4]);
    assert.deepEqual(threads(2, 3), [1, 1, 1]);
    assert.deepEqual(threads(0, 1), [0], 'the backend knows the number of cores');
    assert.ok(threads(0, 2).every((count) => count >= 1));
  });
});
