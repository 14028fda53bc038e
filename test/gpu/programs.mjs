/**
 * The GPU test programs: one line each, the test's own file (programs/NAME.cu) left out. A program is called with the word of its check:
 *
 *   check     correctness of everything; exit 1 on a failure
 *   quick     fewer and smaller cases of the same, for compute-sanitizer
 *   generic   the check where the program holds code for compute capability 8.0 alone; null: it tests what only newer devices have
 *
 * and without a word does both the check and its timings.
 */

/** @typedef {{ name: string, sources: string[], cublas: boolean, check: string, quick: string, generic: string | null }} Program */

/** `sources`: files by their folder of native/. @returns {Program} */
function program(name, sources, settings = {}) {
  const files = Object.entries(sources).flatMap(([room, names]) => names.split(' ').map((file) => `${room}/${file}`));
  return { name, sources: files, cublas: false, check: 'check', quick: 'quick', generic: 'check', ...settings };
}

/** The kernels of 8-bit codes, parts of ours. */
const codesKernels = 'small_gemm_codes.cu stream_gemm_codes_sm90.cu large_gemm_codes_sm90.cu';
/** Those of codes in tiles. */
const tileKernels = 'coded_small_gemm.cu coded_stream_gemm_sm90.cu';
/** Those of up to four rows, of either. */
const fewKernels = 'codes_few_gemm.cu coded_few_gemm.cu';
/** What products are made of: cuBLASLt, and `kernels` of ours beside it. */
const products = (kernels) => ({
  'cuda/gemm': `gemm_lt.cpp gemm_codes.cpp ${kernels}`,
  'cuda/gemm/batch': 'batch_gemm_sm90.cu',
  'cuda/gemm/codes': codesKernels,
  'cuda/gemm/tiles': tileKernels,
  'cuda/gemm/few': fewKernels,
  'cuda/device': 'tensor_map.cu',
  'cuda/rows': 'activation.cu norm.cu scaled_rows.cu',
});
/** All of gemm_kernels.cpp. */
const allKernels = 'gemm_kernels.cpp small_gemm.cu stream_gemm.cpp stream_gemm_sm90.cu large_gemm_sm90.cu';

/** @type {readonly Program[]} */
export const programs = [
  program('attention_decode_test', {
    'cuda/attention': 'attention_decode.cu attention_decode_with_rope.cu attention_decode_runs.cu attention_decode_plan.cu rope_kv.cu',
  }),
  program(
    'attention_prefill_test',
    { 'cuda/attention': 'attention_prefill.cu attention_prefill_sm90.cu row_lists.cu', 'cuda/device': 'tensor_map.cu' },
    { generic: 'mma' },
  ),
  program(
    'coded_gemm_test',
    {
      'cuda/gemm/tiles': tileKernels,
      'cuda/gemm/few': 'coded_few_gemm.cu',
      'cuda/device': 'tensor_map.cu',
      'cuda/rows': 'coded_weights.cu coded_records.cpp',
    },
    { generic: 'small' },
  ),
  program('elementwise_test', { 'cuda/rows': 'norm.cu activation.cu embedding.cu', 'cuda/attention': 'rope_kv.cu' }),
  program('gemm_test', { ...products(allKernels), 'cuda/attention': 'rope_kv.cu' }, { cublas: true }),
  program('codes_gemm_test', {
    'cuda/gemm': `gemm_codes.cpp ${allKernels}`,
    'cuda/gemm/batch': 'batch_gemm_sm90.cu',
    'cuda/gemm/codes': codesKernels,
    'cuda/gemm/tiles': tileKernels,
    'cuda/gemm/few': fewKernels,
    'cuda/device': 'tensor_map.cu',
    'cuda/rows': 'scaled_rows.cu',
  }),
  // These have an empty gemm_kernels() of their own, so that cuBLASLt is alone beside their kernel.
  program('large_gemm_test', products('large_gemm_sm90.cu small_gemm.cu stream_gemm.cpp stream_gemm_sm90.cu'), {
    cublas: true,
    generic: null,
  }),
  program('batch_gemm_test', products('small_gemm.cu stream_gemm.cpp stream_gemm_sm90.cu large_gemm_sm90.cu'), {
    cublas: true,
    generic: null,
  }),
  program('stream_gemm_test', products('stream_gemm.cpp stream_gemm_sm90.cu large_gemm_sm90.cu small_gemm.cu'), {
    cublas: true,
    generic: null,
  }),
  program('latent_attention_test', {
    'cuda/latent': 'latent_attention.cu latent_attention_sm90.cu',
    'cuda/device': 'tensor_map.cu',
  }),
  program('sampler_test', {
    'cuda/sampler': 'sampler.cu sampler_greedy.cu',
    'cpu/sampler': 'sampler.cpp sampling_math.cpp',
    'cpu/isa': 'kernels_reference.cpp',
  }),
  program(
    'all_reduce_test',
    {
      'cuda/ranks': 'collectives.cu two_shot.cu sum_norm.cu sum_timing.cpp sum_pipe.cpp',
      'cuda/rows': 'norm.cu',
      'cuda/runtime': 'check.cpp memory.cpp',
    },
    { quick: 'alone' }, // under the tools no kernel runs beside another, for which it might wait
  ),
  program('gathered_test', { 'cuda/ranks/nccl': 'gathered.cu' }),
  program('tables_test', { 'cuda/sampler': 'slots.cu', 'cuda/runtime': 'block_copy.cu' }),
];
