/**
 * A span for each call that generates, by OpenTelemetry's semantic conventions for generative AI: `chat demo` with `gen_ai.*` attributes, made
 * when the call begins and filled from its answer when it ends. Prompts, answers and stop strings are never in it. Times that vLLM's spans
 * have keep their names there (`gen_ai.latency.*`). The only user of @opentelemetry/api; main thread.
 */
import {
  type Attributes,
  type AttributeValue,
  type Context,
  context,
  createTraceState,
  isSpanContextValid,
  ProxyTracerProvider,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import { errorTable, type Failure } from '../../actors/messages/errors.js';
import type { CallWatch, Observe, ObservedCall, TraceHeaders } from '../../rpc/observe.js';

export type { TracerProvider };

const provider = 'inferd';

/** Parameters that are numbers and no text of a user, and what the conventions call them. */
const numbers: readonly (readonly [param: string, attribute: string])[] = [
  ['max_tokens', 'gen_ai.request.max_tokens'],
  ['max_completion_tokens', 'gen_ai.request.max_tokens'],
  ['temperature', 'gen_ai.request.temperature'],
  ['top_p', 'gen_ai.request.top_p'],
  ['top_k', 'gen_ai.request.top_k'],
  ['frequency_penalty', 'gen_ai.request.frequency_penalty'],
  ['presence_penalty', 'gen_ai.request.presence_penalty'],
  ['seed', 'gen_ai.request.seed'],
];

/** Longest name of a model in a span: a client may ask for any. */
const maxName = 256;

/** Spans of the provider that the program, or the environment, has registered with OpenTelemetry; nothing where there is none. */
export const registeredSpans = (version: string): Observe => observer(() => (isRegistered() ? trace.getTracer(provider, version) : null));

export function spansOf(tracers: TracerProvider, version: string): Observe {
  const tracer = tracers.getTracer(provider, version);
  return observer(() => tracer);
}

/** Whether there is anybody to tell: a program may register its own at any time. */
function isRegistered(): boolean {
  const tracers = trace.getTracerProvider();
  return !(tracers instanceof ProxyTracerProvider) || tracers.getDelegateTracer(provider) !== undefined;
}

function observer(tracerOf: () => Tracer | null): Observe {
  return (call) => {
    const tracer = tracerOf();
    if (tracer === null) return null;
    const startMs = nowMs();
    const span = tracer.startSpan(
      `${call.operation} ${call.model.slice(0, maxName)}`,
      { kind: SpanKind.SERVER, startTime: startMs, attributes: asked(call) },
      parentOf(call.trace),
    );
    return span.isRecording() ? new CallSpan(span, startMs) : null;
  };
}

/** Milliseconds since the epoch, with their fractions. */
const nowMs = (): number => performance.timeOrigin + performance.now();

function asked({ operation, model, params }: ObservedCall): Attributes {
  const attributes: Attributes = {
    'gen_ai.operation.name': operation,
    'gen_ai.provider.name': provider,
    'gen_ai.request.model': model.slice(0, maxName),
  };
  for (const [param, attribute] of numbers) {
    const value = params[param];
    if (typeof value === 'number' && Number.isFinite(value)) attributes[attribute] = value;
  }
  const { n } = params;
  if (typeof n === 'number' && n > 1) attributes['gen_ai.request.choice.count'] = n;
  return attributes;
}

/** The caller's span, else the one that is active here: a program's own, around a call of its engine. */
function parentOf(headers: TraceHeaders | null): Context {
  const here = context.active();
  if (headers === null) return here;
  // W3C Trace Context: version, trace id, parent id, flags; later versions may have more behind these.
  const match = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-|$)/.exec(headers.parent.trim());
  if (match === null || (match[1] === '00' && match[5] === '-')) return here;
  const [, , traceId = '', spanId = '', flags = '0'] = match;
  const caller = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & 1,
    isRemote: true,
    ...(headers.state === undefined ? {} : { traceState: createTraceState(headers.state) }),
  };
  return isSpanContextValid(caller) ? trace.setSpanContext(here, caller) : here;
}

/** What is read of an answer, of whatever method: what it lacks stays away. */
interface AnswerFacts {
  readonly id?: unknown;
  readonly model?: unknown;
  readonly choices?: readonly { readonly finish_reason?: unknown }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number };
    readonly ttft_s?: number;
    readonly latency_s?: number;
    readonly queue_s?: number;
  };
}

class CallSpan implements CallWatch {
  readonly #span: Span;
  readonly #startMs: number;

  constructor(span: Span, startMs: number) {
    this.#span = span;
    this.#startMs = startMs;
  }

  done(result: unknown): void {
    const answer = (result ?? {}) as AnswerFacts; // proof: the answer of a method with an operation
    const { id, model, choices = [] } = answer;
    const reasons = choices.flatMap(({ finish_reason: reason }) => (typeof reason === 'string' ? [reason] : []));
    this.#set({
      'gen_ai.response.id': text(id),
      'gen_ai.response.model': text(model),
      'gen_ai.response.finish_reasons': reasons.length === 0 ? undefined : reasons,
    });
    this.#usage(answer.usage);
    this.#span.end(nowMs());
  }

  failed({ kind, data }: Failure): void {
    this.#set({ 'error.type': kind });
    // A caller that leaves is no error of ours.
    if (kind !== 'cancelled') this.#span.setStatus({ code: SpanStatusCode.ERROR, message: errorTable[kind].message });
    this.#usage((data as AnswerFacts | undefined)?.usage); // proof: read as what it may be; failures of half an answer have it
    this.#span.end(nowMs());
  }

  #usage(usage: AnswerFacts['usage']): void {
    if (usage === undefined) return;
    this.#set({
      'gen_ai.usage.input_tokens': usage.prompt_tokens,
      'gen_ai.usage.output_tokens': usage.completion_tokens,
      'gen_ai.usage.cache_read.input_tokens': usage.prompt_tokens_details?.cached_tokens,
      'gen_ai.latency.time_in_queue': usage.queue_s,
      'gen_ai.latency.e2e': usage.latency_s,
    });
    const { ttft_s } = usage;
    if (ttft_s === undefined || ttft_s <= 0) return; // no token came
    this.#set({ 'gen_ai.latency.time_to_first_token': ttft_s });
    this.#span.addEvent('gen_ai.first_token', this.#startMs + 1000 * ttft_s);
  }

  #set(values: Readonly<Record<string, AttributeValue | undefined>>): void {
    for (const [name, value] of Object.entries(values)) if (value !== undefined) this.#span.setAttribute(name, value);
  }
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
