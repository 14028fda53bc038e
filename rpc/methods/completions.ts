/** completions.create: plain text completion, several prompts in one call. */
import { randomUUID } from 'node:crypto';
import { chunkObjects } from '../client/chunk.js';
import type { RpcDeps } from '../context.js';
import { chunkEvents } from '../dialects/openai/stream.js';
import { completionExamples } from '../examples/generation.js';
import { GenerationCall } from '../generation/call.js';
import { CompletionAnswer } from '../generation/completion-answer.js';
import { generationParams } from '../generation/params.js';
import { streamChoice } from '../generation/stream-option.js';
import { defineMethod, fromBody } from '../method.js';
import { findAsked, servedName } from '../models.js';
import { eventSchema, httpStream } from '../schemas/chunk.js';
import type { RequestLimits } from '../schemas/common.js';
import { completionBody, completionDeltaSchema, completionSchema } from '../schemas/completion.js';
import { progressSchema } from '../schemas/progress.js';
import { promptInputs } from '../schemas/prompt.js';

/** OpenAI's and vLLM's default for text completions. */
const defaultMaxTokens = 16;

export function completionsMethod(deps: RpcDeps, limits: RequestLimits) {
  return defineMethod({
    name: 'completions.create',
    summary: 'Continues one or more texts.',
    params: completionBody(limits),
    result: completionSchema,
    progress: progressSchema(completionDeltaSchema),
    longLists: ['prompt'],
    examples: completionExamples,
    http: {
      verb: 'POST',
      path: '/v1/completions',
      params: fromBody,
      stream: chunkEvents,
      shape: {
        params: completionBody(limits).extend({ stream: httpStream }),
        event: eventSchema(chunkObjects['completions.create'], completionDeltaSchema),
      },
    },
    operation: 'text_completion',
    work: true,
    ownsCancel: true,
    handler: async (body, ctx) => {
      const known = findAsked(deps.models, body);
      const open = streamChoice(body, ctx);
      const echo = body.echo ?? false;
      const tokenIds = body.return_token_ids ?? false;
      const topLogprobs = body.logprobs ?? -1;
      const params = generationParams(body, known, {
        topLogprobs,
        promptLogprobs: echo ? topLogprobs : -1,
        echo,
        // As in vLLM, null asks for as many as fit.
        defaultMaxTokens: body.max_tokens === null ? null : defaultMaxTokens,
        constrained: false,
      });
      const perPrompt = (echo && topLogprobs >= 0 ? 1 : 0) + (typeof body.prompt_logprobs === 'number' ? 1 : 0);
      const head = { id: `cmpl-${randomUUID()}`, created: Math.floor(Date.now() / 1000), model: servedName(known) };
      const answer = new CompletionAnswer({
        ...head,
        n: params.n,
        bestOf: params.bestOf,
        streamed: open !== null,
        logprobs: topLogprobs >= 0,
        promptLogprobs: typeof body.prompt_logprobs === 'number',
        tokenIds,
        promptInStream: ctx.sinks.kind === 'http',
        echo,
        textOf: (id) => call.textOf(id),
      });
      const call: GenerationCall = new GenerationCall(
        deps,
        {
          known,
          head: { ...head, object: chunkObjects['completions.create'] },
          prompts: promptInputs(body.prompt, body.add_special_tokens ?? true),
          params,
          keep: { text: open === null, tokenIds },
          reports: { promptToken: params.n * perPrompt * (1 + params.promptLogprobs), token: 1 + topLogprobs },
          stream: open && {
            open,
            shape: (pieces) => answer.deltas(pieces),
            pieces: (delta, index, prompt) => answer.pieces(delta, index, prompt),
          },
        },
        ctx,
      );
      return answer.build(await call.run(), call.usage());
    },
  });
}
