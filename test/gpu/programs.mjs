/**
 * The GPU test programs: one line each, the test's own file (test/gpu/NAME.cu) left out. A program is called with the word of its check:
 *
 *   check     correctness of everything; exit 1 on a failure
 *   quick     fewer and smaller cases of the same, for compute-sanitizer
 *   generic   the check where the program holds code for compute capability 8.0 alone; null: it tests what only newer devices have
 *
 * and without a word does both the check and its timings.
 */

/** @typedef {{ name: string, sources: string[], cublas: boolean, check: string, quick: string, generic: string | null }} Program */

/** `sources`: files of native/, the folder cuda/ understood. @returns {Program} */
function program(name, sources, settings = {}) {
  const files = sources.split(' ').map((file) => (file.includes('/') ? file : `cuda/${file}`));
  return { name, sources: files, cublas: false, check: 'check', quick: 'quick', generic: 'check', ...settings };
}

/** cuBLASLt and every kernel of gemm_kernels.cpp. */
const products =
  'gemm_lt.cpp gemm_kernels.cpp small_gemm.cu stream_gemm.cpp stream_gemm_sm90.cu large_gemm_sm90.cu tensor_map.cu activation.cu norm.cu';
/** cuBLASLt alone: the program has an empty gemm_kernels() of its own. */
const cublas = 'gemm_lt.cpp tensor_map.cu activation.cu norm.cu';
const cpuSampler = 'cpu/sampler.cpp cpu/sampling_math.cpp cpu/kernels_reference.cpp';

/** @type {readonly Program[]} */
export const programs = [
  program('attention_decode_test', 'attention_decode.cu attention_decode_plan.cu rope_kv.cu'),
  program('attention_prefill_test', 'attention_prefill.cu attention_prefill_sm90.cu tensor_map.cu', { generic: 'mma' }),
  program('elementwise_test', 'norm.cu activation.cu rope_kv.cu embedding.cu'),
  program('gemm_test', `${products} rope_kv.cu`, { cublas: true }),
  program('large_gemm_test', `${cublas} large_gemm_sm90.cu`, { cublas: true, generic: null }),
  program('sampler_test', `sampler.cu sampler_greedy.cu ${cpuSampler}`),
  program('stream_gemm_test', `${cublas} stream_gemm.cpp stream_gemm_sm90.cu`, { cublas: true, generic: null }),
  program('tables_test', 'slots.cu block_copy.cu'),
];
