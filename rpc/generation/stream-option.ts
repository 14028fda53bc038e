/** `params.stream` -> progress token and credit, and the places where a call cannot stream. */
import type { CallContext } from '../context.js';
import { invalidParams } from '../params.js';
import type { GenerationBody } from '../schemas/generation.js';

export interface StreamChoice {
  readonly token: string | number;
  /** `null`: not counted. */
  readonly credit: number | null;
}

/** Null when the answer is wanted whole. @throws InferdError invalid_params */
export function streamChoice(stream: GenerationBody['stream'], ctx: CallContext): StreamChoice | null {
  if (stream === undefined || stream === null || stream === false) return null;
  const refuse = (message: string) => invalidParams([{ path: 'stream', message }]);
  if (ctx.inBatch) throw refuse('A streaming call cannot be part of a batch');
  if (ctx.session === null) throw refuse('Streaming needs a WebSocket; over HTTP leave stream out');
  if (stream !== true) return { token: stream.token, credit: stream.credit ?? null };
  if (ctx.id === undefined || ctx.id === null) throw refuse('stream: true needs a request id that is a string or a number');
  return { token: ctx.id, credit: null };
}
