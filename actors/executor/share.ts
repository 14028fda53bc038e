/** Which part of an engine group, and of what its host has, an executor stands for. Pure; in the executor's thread. */
import type { EngineOptions } from '../../native/index.js';

type Ranks = Pick<EngineOptions, 'rank' | 'worldSize' | 'dpAttention'>;

/** Ranks of its group. Those that attend to sequences of their own are ranks of one model, and each a group. */
export const ranksOfGroup = ({ worldSize, dpAttention = false }: Ranks): number => (dpAttention ? 1 : worldSize);

/** Its number among them. */
export const rankInGroup = ({ rank, dpAttention = false }: Ranks): number => (dpAttention ? 0 : rank);
