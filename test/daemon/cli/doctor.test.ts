/** What doctor says of the CUDA backend, from what the addon and the machine report. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cudaChecks, formatChecks, ncclChecks } from '../../../daemon/cli/doctor.js';
import { type CudaInfo, type CudaLink, loadAddon, type SystemInfo } from '../../../native/index.js';

const none: CudaInfo = { problem: '', driverVersion: 13, runtimeVersion: 13, cublas: '13.1.0', devices: [] };
const checks = (cuda: Partial<CudaInfo>, gpus: readonly string[] = ['NVIDIA H200'], nvcc: string | null = 'release 13.0') =>
  cudaChecks({ info: { cuda: { ...none, ...cuda } } as SystemInfo }, { gpus, nvcc });
const check = (...args: Parameters<typeof checks>) => checks(...args)[0];
const device = (computeCapability: string, links: readonly CudaLink[] = ['none']) => ({
  name: 'GPU',
  computeCapability,
  totalBytes: 80 * 2 ** 30,
  links,
});

test('a machine without a GPU learns why CUDA is not used, and nothing to do', () => {
  const found = check({ problem: 'No NVIDIA driver was found (libcuda.so.1); install it to use a GPU.' }, []);
  assert.deepEqual(found, { name: 'CUDA backend', state: 'missing', found: 'cannot be used: No NVIDIA driver was found (libcuda.so.1)' });
});

test('a GPU that stays idle comes with what is missing and what to do', () => {
  const cublas = check({
    problem: 'cuBLAS was not found (libcublasLt.so.13); install it with the CUDA toolkit, or put its folder in LD_LIBRARY_PATH.',
  });
  assert.equal(cublas?.found, 'cannot be used: cuBLAS was not found (libcublasLt.so.13)');
  assert.equal(cublas?.advice, 'install it with the CUDA toolkit, or put its folder in LD_LIBRARY_PATH');
  const unbuilt =
    'This build has no CUDA backend (x.so is missing); install the CUDA toolkit and run "npm run build", or use the device "cpu".';
  assert.match(check({ problem: unbuilt }, ['NVIDIA H200'], null)?.advice ?? '', /npm run build.*nvcc .* was not found$/);
  assert.doesNotMatch(check({ problem: unbuilt })?.advice ?? '', /nvcc/);
  assert.equal(
    check({ problem: 'The NVIDIA driver is too old: it serves CUDA 12.4 and this build needs 13.0.' })?.advice,
    'put that right to use the GPU',
  );
});

test('a GPU that is too old is named, with the ones to use instead', () => {
  assert.equal(check({ devices: [device('9.0')] })?.state, 'ok');
  assert.equal(check({ devices: [device('9.0')] })?.advice, undefined);
  const mixed = check({ devices: [device('7.5'), device('9.0')] });
  assert.equal(mixed?.state, 'ok');
  assert.match(mixed?.advice ?? '', /need compute capability 8\.0 or newer, which GPU 0 has not; set inference\.device_ids to \[1\]/);
});

test('several GPUs come with how they reach each other, and with what to do where they do not', () => {
  const links = (...rows: (readonly CudaLink[])[]) => checks({ devices: rows.map((row) => device('9.0', row)) })[1];
  assert.equal(links(['none']), undefined);
  assert.deepEqual(links(['none', 'nvlink'], ['nvlink', 'none']), { name: 'GPU links', state: 'ok', found: 'NVLink between all' });
  const mixed = links(['none', 'nvlink', 'peer'], ['nvlink', 'none', 'none'], ['peer', 'none', 'none']);
  assert.equal(mixed?.state, 'missing');
  assert.equal(mixed?.found, 'NVLink 0-1; PCIe 0-2; no way 1-2');
  assert.match(mixed?.advice ?? '', /inference\.device_ids/);
});

test('NCCL comes with its version, and with what to do where it is asked for and missing', () => {
  assert.deepEqual(ncclChecks(null, 'none'), []);
  assert.deepEqual(ncclChecks({ problem: '', version: '2.28.3' }, 'none'), [{ name: 'NCCL', state: 'ok', found: '2.28.3' }]);
  const lacking = { problem: 'NCCL was not found (libnccl.so.2); install NCCL 2.19 or newer.', version: '' };
  const found = { name: 'NCCL', state: 'missing', found: 'NCCL was not found (libnccl.so.2)' };
  assert.deepEqual(ncclChecks(lacking, 'none'), [found]);
  assert.deepEqual(ncclChecks(lacking, 'asked'), [{ ...found, advice: 'install NCCL 2.19 or newer' }]);
  assert.equal(ncclChecks(lacking, 'needed')[0]?.state, 'bad');
});

test('formats of weights are told apart by whether the CPU multiplies them in their own codes', () => {
  const formats = [
    { name: 'Q4_K', native: true },
    { name: 'FP9', native: false },
    { name: 'AWQ', native: true },
  ];
  assert.deepEqual(
    formatChecks(formats).map(({ found }) => found),
    ['Q4_K, AWQ', 'FP9 (to 16 bits, as they are loaded)'],
  );
  assert.equal(formatChecks(formats.slice(0, 1)).length, 1);
  const { weightFormats } = loadAddon().systemInfo();
  for (const name of ['Q8_0', 'Q4_0', 'Q4_K', 'Q5_K', 'Q6_K', 'GPTQ', 'GPTQ with act-order', 'AWQ', 'MXFP4', 'FP8'])
    assert.ok(
      weightFormats.some((f) => f.name === name && f.native),
      name,
    );
});
