/**
 * The ranks of one model, all driven by this thread as if they were one engine: for benchmarks and tests. A daemon gives each rank an
 * executor of its own instead. Nothing here waits for a rank before all have what they wait for each other with.
 */
import { deviceKinds } from './device-kinds.js';
import {
  type AdapterInfo,
  type EngineOptions,
  type ExpertWork,
  type LoadProgress,
  loadAddon,
  type NativeEngine,
  type NativeModelInfo,
} from './index.js';

/** Longer than any step: a rank that waits in vain ends its group by itself before. */
const RANK_WAIT_MS = 3_600_000;
const COMM_TIMEOUT_MS = 60_000;

/** Told of each step: what the ranks answered, that of rank 0 first. */
export type CompareResults = (results: readonly Uint8Array[]) => void;

export class RankEngines implements NativeEngine {
  readonly ranks: readonly NativeEngine[];
  readonly #compare: CompareResults | null;
  readonly #atOnce: boolean;
  readonly #wholeExperts: boolean;
  #buffers: readonly Uint8Array[] = [];

  /** @param devices GPUs of the ranks, 0, 1, .. when not given  @throws NativeError of the first rank that refuses */
  constructor(options: EngineOptions, numRanks: number, compare: CompareResults | null = null, devices: readonly number[] = []) {
    // A kernel that is loaded at its first use waits for the device, which may wait for a rank that this thread has not come to.
    if (options.backend === 'cuda') process.env['CUDA_MODULE_LOADING'] ??= 'EAGER';
    const { onHost } = deviceKinds[options.backend];
    const addon = loadAddon();
    const group = addon.newRankGroup();
    const ranks: NativeEngine[] = [];
    const deviceOf = (rank: number): number => (onHost ? 0 : (devices[rank] ?? rank));
    const rankDevices = Array.from({ length: numRanks }, (_, rank) => deviceOf(rank));
    try {
      for (let rank = 0; rank < numRanks; rank++)
        ranks.push(
          addon.createEngine({
            ...{ commTimeoutMs: COMM_TIMEOUT_MS, ...options },
            ...{ deviceId: deviceOf(rank), rankDevices, rank, worldSize: numRanks, group },
          }),
        );
    } catch (error) {
      for (const rank of ranks) rank.close();
      throw error;
    }
    this.ranks = ranks;
    this.#compare = compare;
    this.#atOnce = !onHost;
    this.#wholeExperts = options.expertParallel ?? false;
  }

  get #first(): NativeEngine {
    return this.ranks[0] as NativeEngine; // proof: there is at least one rank
  }

  load(maxBytes: number): LoadProgress {
    const each = this.ranks.map((rank) => rank.load(maxBytes));
    const sum = (of: (p: LoadProgress) => number): number => each.reduce((total, p) => total + of(p), 0);
    return { doneBytes: sum((p) => p.doneBytes), totalBytes: sum((p) => p.totalBytes), done: each.every((p) => p.done) };
  }

  /** That of rank 0, with the weights of all. */
  info(): NativeModelInfo {
    return { ...this.#first.info(), weightBytes: this.#sum('weightBytes'), tableBytes: this.#sum('tableBytes') };
  }

  #sum(of: 'weightBytes' | 'tableBytes'): number {
    return this.ranks.reduce((sum, rank) => sum + rank.info()[of], 0);
  }

  allocateKv(numBlocks: number, numSwapBlocks = 0): void {
    for (const rank of this.ranks) rank.allocateKv(numBlocks, numSwapBlocks);
  }

  /** That of rank 0; each has a share of it. */
  loadAdapter(id: number, folder: string): AdapterInfo {
    const [first] = this.ranks.map((rank) => rank.loadAdapter?.(id, folder));
    return first as AdapterInfo; // proof: real engines have it
  }

  unloadAdapter(id: number): void {
    for (const rank of this.ranks) rank.unloadAdapter?.(id);
  }

  /** Steps of a GPU are put on it while `submit` runs, and wait for each other there: all at once, as executors do. */
  submit(plan: Uint8Array): void {
    if (this.#atOnce) this.#first.submit(plan, this.ranks.slice(1));
    else for (const rank of this.ranks) rank.submit(plan);
  }

  wait(result: Uint8Array, timeoutMs: number): number {
    const bytes = this.#first.wait(result, timeoutMs);
    if (bytes === 0) return 0;
    if (this.#buffers[0]?.byteLength !== result.byteLength)
      this.#buffers = this.ranks.slice(1).map(() => new Uint8Array(result.byteLength));
    const others = this.#buffers.map((buffer, i) => buffer.subarray(0, this.ranks[i + 1]?.wait(buffer, RANK_WAIT_MS)));
    this.#compare?.([result.subarray(0, bytes), ...others]);
    return bytes;
  }

  /** Of all ranks: where they share experts whole, those of each, and else what each has a part of. */
  expertWork(): ExpertWork[] {
    const [first = [], ...others] = this.ranks.map((rank) => rank.expertWork?.() ?? []);
    if (this.#wholeExperts)
      return first.map((work, i) => ({
        ...work,
        tokens: Int32Array.from([work, ...others.map((other) => other[i] ?? work)].flatMap(({ tokens }) => [...tokens])),
      }));
    return first.map((work) => ({ ...work, bytes: work.bytes * this.ranks.length }));
  }

  lastError(): string {
    return this.ranks.map((rank) => rank.lastError?.() ?? '').find((text) => text !== '') ?? '';
  }

  pending(): number {
    return this.#first.pending();
  }

  close(limitMs?: number): boolean {
    return this.ranks.map((rank) => rank.close(limitMs)).every(Boolean);
  }
}
