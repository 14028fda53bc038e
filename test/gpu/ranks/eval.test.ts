/**
 * The evaluation set through a daemon on two GPUs and more: a model split over all of them, with graphs and without, groups of a GPU each,
 * and of four GPUs two groups of two. Needs two GPUs; takes as many as there are, up to 4, which is how many heads the model has.
 */
import { testEvalSet } from '../../helpers/daemon/eval-set.js';
import { firstDevices, rankCounts } from '../../helpers/native/rank-counts.js';

for (const gpus of rankCounts().filter((count) => count <= 4)) {
  const all = ['inference.device=cuda', firstDevices(gpus)];
  const split = [...all, `parallel.tensor_parallel_size=${gpus}`];
  const groups = [...all, `parallel.data_parallel_size=${gpus}`];
  const over = `split over ${gpus} GPUs`;
  const settings = [
    { name: `${over}, alone`, inFlight: 1, sets: split },
    { name: `${over}, 32 in flight`, inFlight: 32, sets: split },
    { name: `${over}, 32 in flight, no graphs`, inFlight: 32, sets: [...split, 'inference.enforce_eager=true'] },
    { name: `${over}, 32 in flight, with drafts`, inFlight: 32, sets: [...split, 'speculative.method=ngram'] },
    {
      name: `${over}, summed by NCCL, with drafts`,
      inFlight: 32,
      sets: [...split, 'speculative.method=ngram', 'parallel.all_reduce=nccl'],
    },
    { name: `a group on each of ${gpus} GPUs, 32 in flight`, inFlight: 32, sets: groups },
  ];
  for (const setting of settings) testEvalSet(setting);
  if (gpus === 4)
    testEvalSet({
      name: 'two groups of two GPUs each, 32 in flight',
      inFlight: 32,
      sets: [...all, 'parallel.tensor_parallel_size=2', 'parallel.data_parallel_size=2'],
    });
}
