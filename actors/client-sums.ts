/** What several engine groups answer to one call, as one answer. Pure; used by client-groups.ts. */
import type {
  DraftCounts,
  EngineCallName,
  EngineCalls,
  HistogramCounts,
  RecentSteps,
  SchedulerStats,
  StepHistograms,
} from './messages/calls.js';
import { KV_CELL, type KvMap, MAX_KV_OWNERS } from './messages/kv-map.js';

type Reply<N extends EngineCallName> = EngineCalls[N]['reply'];
/** `replies`: two at least, in the order of groups. */
type Sums = { readonly [N in EngineCallName]: (replies: readonly Reply<N>[]) => Reply<N> };

const sums: Sums = {
  stats: statsOf,
  steps: stepsOf,
  recent: recentOf,
  kvMap: kvMapOf,
  adapterUse: (all) => ({
    running: [...new Set(all.flatMap(({ running }) => running))],
    waiting: [...new Set(all.flatMap(({ waiting }) => waiting))],
  }),
  addAdapter: () => null,
  dropAdapter: (all) => all.reduce((sum, users) => sum + users, 0),
  timeline: (all) => all.find((one) => one !== null) ?? null,
};

/** What each of several groups is asked, so that their answers together are what was asked. */
export function partOf<N extends EngineCallName>(name: N, params: EngineCalls[N]['params'], numGroups: number): EngineCalls[N]['params'] {
  if (name !== 'kvMap' || numGroups === 1) return params;
  const { maxCells } = params as EngineCalls['kvMap']['params']; // proof: of that name
  return { maxCells: Math.max(1, Math.floor(maxCells / numGroups)) } as EngineCalls[N]['params'];
}

export function sumOf<N extends EngineCallName>(name: N, replies: readonly Reply<N>[]): Reply<N> {
  return sums[name](replies);
}

/** All is added up but the size of a block; of the times of steps the longest count. */
function statsOf(all: readonly SchedulerStats[]): SchedulerStats {
  const sum = (of: (one: SchedulerStats) => number): number => all.reduce((total, one) => total + of(one), 0);
  const most = (of: (one: SchedulerStats) => number): number => Math.max(...all.map(of));
  return {
    requests: {
      running: sum(({ requests }) => requests.running),
      waiting: sum(({ requests }) => requests.waiting),
      swapped: sum(({ requests }) => requests.swapped),
      finished_total: sum(({ requests }) => requests.finished_total),
      aborted_total: sum(({ requests }) => requests.aborted_total),
      preempted_total: sum(({ requests }) => requests.preempted_total),
    },
    kv: {
      block_size: most(({ kv }) => kv.block_size),
      total_blocks: sum(({ kv }) => kv.total_blocks),
      used_blocks: sum(({ kv }) => kv.used_blocks),
      cached_blocks: sum(({ kv }) => kv.cached_blocks),
      free_blocks: sum(({ kv }) => kv.free_blocks),
      swap_total: sum(({ kv }) => kv.swap_total),
      swap_used: sum(({ kv }) => kv.swap_used),
    },
    tokens: {
      prompt_total: sum(({ tokens }) => tokens.prompt_total),
      generated_total: sum(({ tokens }) => tokens.generated_total),
      prefix_hit_total: sum(({ tokens }) => tokens.prefix_hit_total),
    },
    step: { count: sum(({ step }) => step.count), p50_ms: most(({ step }) => step.p50_ms), p99_ms: most(({ step }) => step.p99_ms) },
    ...draftsOf(all.flatMap(({ speculation }) => speculation ?? [])),
  };
}

/** All draft as many tokens at most. */
function draftsOf(all: readonly DraftCounts[]): Pick<SchedulerStats, 'speculation'> {
  const [first] = all;
  if (first === undefined) return {};
  const sum = (of: (one: DraftCounts) => number): number => all.reduce((total, one) => total + of(one), 0);
  return {
    speculation: {
      drafts_total: sum((one) => one.drafts_total),
      draft_tokens_total: sum((one) => one.draft_tokens_total),
      accepted_tokens_total: sum((one) => one.accepted_tokens_total),
      accepted_per_position: first.accepted_per_position.map((_, i) => sum((one) => one.accepted_per_position[i] ?? 0)),
      accepted_histogram: first.accepted_histogram.map((_, i) => sum((one) => one.accepted_histogram[i] ?? 0)),
    },
  };
}

function stepsOf(all: readonly StepHistograms[]): StepHistograms {
  return { seconds: histogramOf(all.map(({ seconds }) => seconds)), tokens: histogramOf(all.map(({ tokens }) => tokens)) };
}

/** The same edges in all. */
export function histogramOf(all: readonly HistogramCounts[]): HistogramCounts {
  const edges = all[0]?.edges ?? [];
  const counts = Array.from({ length: edges.length + 1 }, (_, i) => all.reduce((total, one) => total + (one.counts[i] ?? 0), 0));
  return { edges, counts, sum: all.reduce((total, one) => total + one.sum, 0) };
}

/** Steps in the order of their ends. */
function recentOf(all: readonly RecentSteps[]): RecentSteps {
  const rows = all.flatMap((one) => one.atMs.map((atMs, i) => ({ atMs, one, i }))).sort((a, b) => a.atMs - b.atMs);
  const column = (of: (one: RecentSteps) => readonly number[]): number[] => rows.map(({ one, i }) => of(one)[i] ?? 0);
  return {
    next: Array.from({ length: Math.max(...all.map(({ next }) => next.length)) }, (_, group) =>
      Math.max(...all.map(({ next }) => next[group] ?? 0)),
    ),
    atMs: rows.map(({ atMs }) => atMs),
    execUs: column(({ execUs }) => execUs),
    promptTokens: column(({ promptTokens }) => promptTokens),
    decodeTokens: column(({ decodeTokens }) => decodeTokens),
    running: column(({ running }) => running),
  };
}

/** The pools one behind the other, with owners numbered through. */
function kvMapOf(all: readonly KvMap[]): KvMap {
  const owners = all.flatMap((one) => one.owners);
  const cells: number[] = [];
  let before = 0;
  for (const one of all) {
    for (const cell of one.cells) {
      const owned = cell >= KV_CELL.owner && cell !== KV_CELL.others;
      cells.push(owned ? Math.min(cell + before, KV_CELL.others) : cell);
    }
    before += one.owners.length;
  }
  return {
    totalBlocks: all.reduce((total, one) => total + one.totalBlocks, 0),
    blocksPerCell: Math.max(...all.map((one) => one.blocksPerCell)),
    cells: Uint8Array.from(cells),
    owners: owners.slice(0, MAX_KV_OWNERS),
  };
}
