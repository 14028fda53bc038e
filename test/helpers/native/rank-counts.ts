/** Into how many ranks, a GPU each, models can be split on this machine. */
import { loadAddon } from '../../../native/index.js';

/** What parallel.tensor_parallel_size may be beside 1. */
const sizes = [2, 4, 8];

/** Those with a GPU for each rank. @throws where there are no two: what asks has nothing to run on */
export function rankCounts(): readonly number[] {
  const { devices, problem } = loadAddon().systemInfo().cuda;
  const fitting = sizes.filter((ranks) => ranks <= devices.length);
  if (fitting.length === 0) throw new Error(problem || `this needs two GPUs; there is ${devices.length}`);
  return fitting;
}

/** Devices 0 to `count` - 1, as a setting. */
export const firstDevices = (count: number): string => `inference.device_ids=[${Array.from({ length: count }, (_, i) => i).join(',')}]`;
