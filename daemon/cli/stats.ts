/**
 * The counters of an engine as text for people; the shape is that of the method stats.get. Called by status and chat.
 */
import type { Stats } from '../../rpc/schemas/info.js';

const percent = (part: number, whole: number): string => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : '-');

/** A few aligned lines. */
export function statsText({ requests: r, kv, tokens, step, groups = [], speculation: s }: Stats): string {
  const swap = kv.swap_total > 0 ? `, swap ${kv.swap_used} of ${kv.swap_total}` : '';
  return [
    `requests   ${r.running} running, ${r.waiting} waiting${r.swapped > 0 ? `, ${r.swapped} swapped` : ''}; finished ${r.finished_total}, aborted ${r.aborted_total}, preempted ${r.preempted_total}`,
    `KV cache   ${kv.used_blocks} of ${kv.total_blocks} blocks in use (${percent(kv.used_blocks, kv.total_blocks)}), ${kv.cached_blocks} reusable; ${kv.block_size} tokens a block${swap}`,
    `tokens     ${tokens.prompt_total} read, ${tokens.generated_total} generated, ${tokens.prefix_hit_total} from the prefix cache (${percent(tokens.prefix_hit_total, tokens.prompt_total)})`,
    `steps      ${step.count}; p50 ${step.p50_ms.toFixed(1)} ms, p99 ${step.p99_ms.toFixed(1)} ms`,
    ...(s === undefined
      ? []
      : [
          `drafts     ${s.accepted_tokens_total} of ${s.draft_tokens_total} accepted (${percent(s.accepted_tokens_total, s.draft_tokens_total)}), in ${s.drafts_total} samples`,
        ]),
    ...groups.map(
      (one) =>
        `engine ${one.engine}   ${one.requests.running} running, ${one.requests.waiting} waiting; ${one.kv.used_blocks} of ${one.kv.total_blocks} blocks in use`,
    ),
    '',
  ].join('\n');
}
