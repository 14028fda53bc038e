/**
 * The evaluation set through a daemon on CUDA, in bf16, alone and in a crowd, with drafts, with graphs and without, and in a pool so small that
 * requests are preempted, by recompute and by swapping. The wanted answers were computed in float32, so a few may differ where 16 bits decide otherwise; the model
 * answers nearly all tasks by a wide margin.
 */
import { testEvalSet } from '../helpers/daemon/eval-set.js';

const small = ['cache.num_gpu_blocks_override=72', 'scheduler.max_model_len=1024', 'scheduler.max_num_batched_tokens=64'];
/** So small that some request is swapped nearly all the time: the longest case takes 20 blocks. */
const tiny = ['cache.num_gpu_blocks_override=36', 'scheduler.max_model_len=512', 'scheduler.max_num_batched_tokens=64'];
const swap = [...tiny, 'scheduler.preemption_mode=swap', 'cache.swap_space_bytes=268435456'];

const settings = [
  { name: 'alone', inFlight: 1, sets: [] },
  { name: '32 in flight', inFlight: 32, sets: [] },
  { name: '32 in flight, with drafts', inFlight: 32, sets: ['speculative.method=ngram'] },
  { name: '32 in flight, no graphs', inFlight: 32, sets: ['inference.enforce_eager=true'] },
  { name: '32 in flight, f16, prefix cache off', inFlight: 32, sets: ['inference.dtype=f16', 'cache.enable_prefix_caching=false'] },
  { name: '32 in flight in a pool that is too small for them', inFlight: 32, sets: small },
  { name: '64 in flight in a pool that is too small, swapped', inFlight: 64, sets: swap, swaps: true },
  {
    name: '64 in flight in a pool that is too small, swapped, no graphs, prefix cache off',
    inFlight: 64,
    sets: [...swap, 'inference.enforce_eager=true', 'cache.enable_prefix_caching=false'],
    swaps: true,
  },
];

for (const setting of settings) testEvalSet({ ...setting, sets: ['inference.device=cuda', ...setting.sets] });
