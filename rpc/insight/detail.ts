/** What stats has with `detail`: asked of the scheduler when somebody looks, and only then. */
import type { EngineClient } from '../../actors/client-types.js';
import type { RpcDeps } from '../context.js';
import type { StatsDetail } from '../schemas/insight.js';

/** `since`: number of the first step to tell, of each group. Resolves with those of next time, too. */
export async function describeDetail(
  { models, firstTokens }: RpcDeps,
  { model, engine }: { readonly model: string; readonly engine: EngineClient },
  since: readonly number[],
): Promise<{ readonly detail: StatsDetail; readonly next: readonly number[] }> {
  const [steps, recent, memory] = await Promise.all([
    engine.ask('steps', null),
    engine.ask('recent', { since }),
    Promise.all(models.loaded().map(memoryOf)),
  ]);
  const rounded = (values: readonly number[], unit: number): number[] => values.map((value) => Math.round(value / unit) / 1000);
  return {
    next: recent.next,
    detail: {
      first_token_seconds: copy(firstTokens?.(model) ?? null),
      step_seconds: copy(steps.seconds),
      step_tokens: copy(steps.tokens),
      steps: {
        at_ms: rounded(recent.atMs, 0.001),
        exec_ms: rounded(recent.execUs, 1),
        prompt_tokens: [...recent.promptTokens],
        decode_tokens: [...recent.decodeTokens],
        running: [...recent.running],
      },
      models: memory,
    },
  };
}

type Histogram = NonNullable<StatsDetail['first_token_seconds']>;
type Counts = { readonly edges: readonly number[]; readonly counts: readonly number[]; readonly sum: number };

function copy(histogram: Counts): Histogram;
function copy(histogram: Counts | null): Histogram | null;
function copy(histogram: Counts | null): Histogram | null {
  return histogram === null ? null : { edges: [...histogram.edges], counts: [...histogram.counts], sum: histogram.sum };
}

/** An engine that does not answer now has no blocks in use. */
async function memoryOf({ engine, model }: { readonly engine: EngineClient; readonly model: { readonly name: string } }) {
  const served = engine.model();
  const stats = await engine.ask('stats', null).catch(() => null);
  const blockBytes = served?.blockBytes ?? 0;
  return {
    id: model.name,
    state: engine.state(),
    weight_bytes: served?.weightBytes ?? 0,
    kv_bytes: (served?.totalBlocks ?? 0) * blockBytes,
    kv_used_bytes: (stats?.kv.used_blocks ?? 0) * blockBytes,
  };
}
