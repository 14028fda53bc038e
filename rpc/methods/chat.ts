/** chat.completions.create */
import { randomUUID } from 'node:crypto';
import { invalidParams } from '../../actors/messages/errors.js';
import { chunkObjects } from '../client/chunk.js';
import type { RpcDeps } from '../context.js';
import { chunkEvents } from '../dialects/openai/stream.js';
import { chatExamples } from '../examples/generation.js';
import { GenerationCall } from '../generation/call.js';
import { ChatAnswer } from '../generation/chat-answer.js';
import { chatPrompt } from '../generation/messages.js';
import { generationParams } from '../generation/params.js';
import { streamChoice } from '../generation/stream-option.js';
import { toolOffer } from '../generation/tool-choice.js';
import { defineMethod, fromBody } from '../method.js';
import { findAsked, servedName } from '../models.js';
import { type ChatBody, chatBody, chatCompletionSchema, chatDeltaSchema } from '../schemas/chat.js';
import { eventSchema, httpStream } from '../schemas/chunk.js';
import type { RequestLimits } from '../schemas/common.js';
import { progressSchema } from '../schemas/progress.js';

export function chatMethod(deps: RpcDeps, limits: RequestLimits) {
  return defineMethod({
    name: 'chat.completions.create',
    summary: 'Answers a conversation.',
    params: chatBody(limits),
    result: chatCompletionSchema,
    progress: progressSchema(chatDeltaSchema),
    examples: chatExamples,
    http: {
      verb: 'POST',
      path: '/v1/chat/completions',
      params: fromBody,
      stream: chunkEvents,
      shape: {
        params: chatBody(limits).extend({ stream: httpStream }),
        event: eventSchema(chunkObjects['chat.completions.create'], chatDeltaSchema),
      },
    },
    operation: 'chat',
    work: true,
    ownsCancel: true,
    handler: async (body, ctx) => {
      const known = findAsked(deps.models, body);
      const open = streamChoice(body, ctx);
      const offer = toolOffer(body);
      const params = generationParams(body, known, {
        topLogprobs: topLogprobs(body),
        promptLogprobs: -1,
        echo: false,
        defaultMaxTokens: null,
        constrained: offer.constrains,
      });
      const head = { id: `chatcmpl-${randomUUID()}`, created: Math.floor(Date.now() / 1000), model: servedName(known) };
      const promptInStream = ctx.sinks.kind === 'http';
      const answer = new ChatAnswer({
        ...head,
        n: params.n,
        bestOf: params.bestOf,
        streamed: open !== null,
        logprobs: params.topLogprobs >= 0,
        promptLogprobs: params.promptLogprobs >= 0,
        tokenIds: body.return_token_ids ?? false,
        promptInStream,
        textOf: (id) => call.textOf(id),
      });
      const call: GenerationCall = new GenerationCall(
        deps,
        {
          known,
          head: { ...head, object: chunkObjects['chat.completions.create'] },
          prompts: [chatPrompt(body, offer.tools, offer.choice)],
          params,
          keep: { text: open === null, tokenIds: body.return_token_ids ?? false },
          reports: { promptToken: 1 + params.promptLogprobs, token: 1 + params.topLogprobs },
          stream: open && {
            open,
            shape: (pieces) => answer.deltas(pieces),
            ...(promptInStream ? { chunkFields: (pieces) => answer.chunkFields(pieces) } : {}),
            pieces: (delta, index, prompt) => answer.pieces(delta, index, prompt),
          },
        },
        ctx,
      );
      return answer.build(await call.run(), call.usage());
    },
  });
}

function topLogprobs(body: ChatBody): number {
  if (body.logprobs === true) return body.top_logprobs ?? 0;
  if (body.top_logprobs !== undefined && body.top_logprobs !== null && body.top_logprobs > 0) {
    throw invalidParams([{ path: 'top_logprobs', message: 'needs logprobs: true' }]);
  }
  return -1;
}
