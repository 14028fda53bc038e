/** The figures of an offline run, for people and as JSON with the keys of vLLM's `benchmark_throughput`. Pure. */
import { profileText } from '../serve/report.js';

export interface OfflineRun {
  readonly model: string;
  readonly dataset: string;
  readonly seed: number;
  /** From the first prompt handed over to the last answer. */
  readonly elapsedS: number;
  /** Of each answer. */
  readonly usages: readonly { readonly prompt_tokens: number; readonly completion_tokens: number }[];
  /** What profile.stop told, if a profile was recorded. */
  readonly profile: unknown;
}

interface Figures {
  readonly requests: number;
  readonly input: number;
  readonly output: number;
  /** All a second. */
  readonly requestRate: number;
  readonly outputRate: number;
  readonly totalRate: number;
}

function figuresOf({ usages, elapsedS }: OfflineRun): Figures {
  const input = usages.reduce((sum, usage) => sum + usage.prompt_tokens, 0);
  const output = usages.reduce((sum, usage) => sum + usage.completion_tokens, 0);
  const rate = (amount: number): number => (elapsedS > 0 ? amount / elapsedS : 0);
  return {
    requests: usages.length,
    input,
    output,
    requestRate: rate(usages.length),
    outputRate: rate(output),
    totalRate: rate(input + output),
  };
}

export function resultText(run: OfflineRun): string {
  const { requests, input, output, requestRate, outputRate, totalRate } = figuresOf(run);
  return [
    `model     ${run.model}, dataset ${run.dataset}, seed ${run.seed}`,
    `requests  ${requests} answered in ${run.elapsedS.toFixed(2)} s, ${requestRate.toFixed(2)} a second`,
    `tokens    ${input} in, ${output} out; ${outputRate.toFixed(1)} a second out, ${totalRate.toFixed(1)} in and out`,
    run.profile === null ? '' : profileText(run.profile),
  ].join('\n');
}

export function resultJson(run: OfflineRun): Readonly<Record<string, unknown>> {
  const { requests, input, output, requestRate, outputRate, totalRate } = figuresOf(run);
  return {
    model: run.model,
    dataset: run.dataset,
    seed: run.seed,
    elapsed_time: run.elapsedS,
    num_requests: requests,
    total_num_tokens: input + output,
    total_input_tokens: input,
    total_output_tokens: output,
    requests_per_second: requestRate,
    tokens_per_second: totalRate,
    output_tokens_per_second: outputRate,
    ...(run.profile === null ? {} : { profile: run.profile }),
  };
}
