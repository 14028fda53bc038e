/**
 * The evaluation set through a daemon on two GPUs: a model split over both, with graphs and without, and a group on each. Needs two GPUs.
 */
import { testEvalSet } from '../../helpers/daemon/eval-set.js';

const both = ['inference.device=cuda', 'inference.device_ids=[0,1]'];
const split = [...both, 'parallel.tensor_parallel_size=2'];

const settings = [
  { name: 'split over two GPUs, alone', inFlight: 1, sets: split },
  { name: 'split over two GPUs, 32 in flight', inFlight: 32, sets: split },
  { name: 'split over two GPUs, 32 in flight, no graphs', inFlight: 32, sets: [...split, 'inference.enforce_eager=true'] },
  { name: 'split over two GPUs, 32 in flight, with drafts', inFlight: 32, sets: [...split, 'speculative.method=ngram'] },
  {
    name: 'split over two GPUs, summed by NCCL, with drafts',
    inFlight: 32,
    sets: [...split, 'speculative.method=ngram', 'parallel.all_reduce=nccl'],
  },
  { name: 'a group on each of two GPUs, 32 in flight', inFlight: 32, sets: [...both, 'parallel.data_parallel_size=2'] },
];

for (const setting of settings) testEvalSet(setting);
