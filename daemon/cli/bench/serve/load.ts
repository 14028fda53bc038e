/**
 * Sends requests at their times and watches the answers. A request whose time has come while --max-concurrency are in flight waits for one
 * to end, and its clock starts when it is sent. Runs on the main thread, which it leaves between requests.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BenchServer, Generate } from './backends/backend.js';
import { countTokens, mapSome } from './datasets/dataset.js';
import type { BenchRequest, Sample, TokenUsage } from './request.js';

/** As ATOM's. */
const requestLimitMs = 6 * 3600 * 1000;

/** Counters of a running load, for those who watch it. */
export interface LoadCounts {
  sent: number;
  done: number;
  failed: number;
  chunks: number;
}

export interface LoadOptions {
  readonly requests: readonly BenchRequest[];
  /** Seconds after the start, one a request. */
  readonly arrivals: Float64Array;
  readonly maxConcurrency: number | null;
  /** Ends the load early: what is in flight then is in no sample. */
  readonly signal: AbortSignal;
  readonly counts: LoadCounts;
}

export interface LoadResult {
  /** Of the requests that were answered or failed, in their order. */
  readonly samples: readonly Sample[];
  readonly startMs: number;
  readonly durationS: number;
}

/** What one request came to, before its tokens are counted. */
interface Seen extends Omit<Sample, 'inputLen' | 'outputLen'> {
  readonly usage: TokenUsage | null;
}

export async function runLoad(server: BenchServer, options: LoadOptions): Promise<LoadResult> {
  const { requests, arrivals, signal, counts } = options;
  const most = options.maxConcurrency ?? requests.length;
  const seen: (Seen | undefined)[] = [];
  const running = new Set<Promise<void>>();
  // Each request in flight listens to the one signal; Node warns from eleven on.
  setMaxListeners(most + 2, signal);
  const startMs = performance.now();
  for (let i = 0; i < requests.length; i++) {
    await untilMs(startMs + (arrivals[i] ?? 0) * 1000, signal);
    while (running.size >= most) await Promise.race(running);
    if (signal.aborted) break;
    counts.sent++;
    const one = watch(server.generate, requests[i] as BenchRequest, options).then((result) => {
      running.delete(one);
      seen[i] = result ?? undefined;
      if (result === null) return;
      if (result.error === null) counts.done++;
      else counts.failed++;
    });
    running.add(one);
  }
  await Promise.all(running);
  const durationS = (performance.now() - startMs) / 1000;
  const ended = seen.filter((s) => s !== undefined);
  return { samples: await mapSome(ended, (s) => counted(s, server)), startMs, durationS };
}

/** Asks once, outside any measurement. @throws what the server, or the way to it, says */
export function tryOut(generate: Generate, request: BenchRequest, signal: AbortSignal): Promise<TokenUsage> {
  return generate(request, () => undefined, signal);
}

async function untilMs(atMs: number, signal: AbortSignal): Promise<void> {
  for (let left = atMs - performance.now(); left > 0 && !signal.aborted; left = atMs - performance.now())
    await sleep(Math.ceil(left), undefined, { signal }).catch(() => undefined);
}

/** Null when the run was ended meanwhile. */
async function watch(generate: Generate, request: BenchRequest, { signal, counts }: LoadOptions): Promise<Seen | null> {
  const chunkMs: number[] = [];
  const texts: string[] = [];
  const own = new AbortController();
  const end = (): void => own.abort(signal.reason);
  const timer = setTimeout(() => own.abort(new Error('no end within 6 hours')), requestLimitMs);
  signal.addEventListener('abort', end, { once: true });
  const sentMs = performance.now();
  const seen = (usage: TokenUsage | null, error: string | null): Seen => ({ request, sentMs, chunkMs, text: texts.join(''), usage, error });
  try {
    const usage = await generate(
      request,
      ({ atMs, text }) => {
        chunkMs.push(atMs);
        texts.push(text);
        counts.chunks++;
      },
      own.signal,
    );
    return seen(usage, null);
  } catch (error) {
    if (signal.aborted) return null;
    return seen(null, error instanceof Error && error.message !== '' ? error.message : String(error));
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}

/** Tokens as the server counted them, else by its tokenizer, else a token a chunk. */
async function counted({ usage, ...rest }: Seen, { tokenizer }: BenchServer): Promise<Sample> {
  const inputLen = usage?.prompt ?? rest.request.inputLen;
  if (rest.error !== null) return { ...rest, inputLen, outputLen: 0 };
  const output = usage?.completion ?? (tokenizer === null ? rest.chunkMs.length : await countTokens(rest.text, tokenizer));
  return { ...rest, inputLen, outputLen: output };
}
