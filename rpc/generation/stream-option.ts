/** `params.stream` -> the way out of the answer, and the places where a call cannot stream. */
import type { CallContext } from '../context.js';
import type { GenerationBody } from '../schemas/generation.js';
import { type OpenSink, refusedStream } from '../sink.js';

/** Null when the answer is wanted whole. @throws InferdError invalid_params */
export function streamChoice(
  { stream, stream_options }: Pick<GenerationBody, 'stream' | 'stream_options'>,
  ctx: CallContext,
): OpenSink | null {
  if (stream === undefined || stream === null || stream === false) return null;
  if (ctx.inBatch) throw refusedStream('A streaming call cannot be part of a batch');
  return ctx.sinks.choose({ stream, usage: stream_options?.include_usage ?? false }, ctx.id);
}
