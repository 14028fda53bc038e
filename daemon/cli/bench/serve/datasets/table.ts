/** All datasets of `inferd bench serve`. A new one is a file and a line here. */
import { burstgpt } from './burstgpt.js';
import type { Dataset } from './dataset.js';
import { randomDataset } from './random.js';
import { sharegpt } from './sharegpt.js';
import { sonnet } from './sonnet.js';

export const datasets: readonly Dataset[] = [randomDataset, sharegpt, burstgpt, sonnet];
