/** tokenize and detokenize: the model's tokenizer and chat template, without generating. */

import { z } from 'zod';
import type { EngineClient } from '../../actors/client-types.js';
import { InferdError, invalidParams } from '../../actors/messages/errors.js';
import type { PromptInput } from '../../actors/messages/requests.js';
import type { CallContext, RpcDeps } from '../context.js';
import { detokenizeExamples, detokenizeFaceExamples, tokenizeExamples, tokenizeFaceExamples } from '../examples/tokens.js';
import { chatPrompt } from '../generation/messages.js';
import { tooManyAnswers } from '../holding.js';
import { defineMethod, type HttpInput } from '../method.js';
import { withEngine } from '../models.js';
import { packedIds, packedList } from '../packed-list.js';
import { manyTokenIds } from '../schemas/common.js';
import { messagesSchema, templateArgsSchema, toolsSchema } from '../schemas/messages.js';

/** A token's text with its quotes and comma, as JSON, roughly. */
const TEXT_CHARS = 8;

const modelParam = z.string().min(1, 'must not be empty').nullish().describe('The default model when not given.');

const tokenizeParams = z.object({
  text: z.string().nullish(),
  add_special_tokens: z.boolean().nullish().describe('With text; true by default.'),
  messages: messagesSchema.nullish(),
  tools: toolsSchema.nullish(),
  add_generation_prompt: z.boolean().nullish().describe('With messages; true by default.'),
  chat_template_kwargs: templateArgsSchema.nullish(),
  return_token_strs: z.boolean().nullish().describe('Report the text of each token too; false by default.'),
  model: modelParam,
});

const tokenStrs = z.array(z.string()).optional().describe('The text of each token; parts of a character show as U+FFFD.');

const { text: _text, ...sameInFace } = tokenizeParams.shape;
const promptFaceParams = z.object({ prompt: z.string().nullish(), ...sameInFace });
const tokensFaceResult = z.object({ count: z.int(), max_model_len: z.int(), tokens: z.array(z.int()), token_strs: tokenStrs });

const tokenized = z.object({ ids: z.array(z.int()), count: z.int(), token_strs: tokenStrs });
type Tokenized = z.output<typeof tokenized>;

export function tokenizeMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'tokenize',
    summary: 'Token ids of a text, or of a conversation in the model’s template.',
    params: tokenizeParams,
    result: tokenized,
    examples: tokenizeExamples,
    http: {
      verb: 'POST',
      path: '/tokenize',
      params: promptFace,
      names: { text: 'prompt' },
      answer: (result, { body }) => tokensFace(deps, result as Tokenized, body),
      shape: { params: promptFaceParams, result: tokensFaceResult, examples: tokenizeFaceExamples },
    },
    work: true,
    handler: (body, ctx) => {
      const prompt = promptOf(body);
      return withEngine(deps.models, body.model, ctx, async ({ engine }) => {
        if (ctx.refused !== undefined) throw new InferdError(ctx.refused.kind, ctx.refused.message);
        const ids = await engine.encode(prompt, ctx);
        hold(ctx, ids.byteLength);
        const told = { ids: packedIds(ids.length, [ids]), count: ids.length };
        if (body.return_token_strs !== true) return told;
        await engine.learnTexts(ids, ctx);
        return { ...told, token_strs: tokenTexts(engine, ids) };
      });
    },
  });
}

/** Made when they are written: the engine knows each text once. */
function tokenTexts(engine: EngineClient, ids: Int32Array): string[] {
  return packedList({
    length: ids.length,
    chars: ids.length * TEXT_CHARS,
    *iterate() {
      for (const id of ids) yield engine.tokenText(id).token;
    },
  });
}

function promptOf(body: z.output<typeof tokenizeParams>): PromptInput {
  const { text, messages } = body;
  const hasText = typeof text === 'string';
  if (messages !== undefined && messages !== null) {
    if (hasText) throw invalidParams([{ path: 'messages', message: 'cannot be given together with a text' }]);
    return chatPrompt({ ...body, messages }, body.tools ?? []);
  }
  if (!hasText) throw invalidParams([{ path: 'text', message: 'is missing; give it or messages' }]);
  return { kind: 'text', text, addSpecialTokens: body.add_special_tokens ?? true };
}

export function detokenizeMethod(deps: RpcDeps) {
  return defineMethod({
    name: 'detokenize',
    summary: 'The text of token ids.',
    params: z.object({ ids: manyTokenIds(), skip_special_tokens: z.boolean().nullish().describe('true by default.'), model: modelParam }),
    result: z.object({ text: z.string() }),
    longLists: ['ids'],
    examples: detokenizeExamples,
    http: {
      verb: 'POST',
      path: '/detokenize',
      params: idsFace,
      names: { ids: 'tokens' },
      answer: (result) => ({ prompt: (result as { text: string }).text }),
      shape: {
        params: z.object({ tokens: manyTokenIds(), model: modelParam }),
        result: z.object({ prompt: z.string() }),
        examples: detokenizeFaceExamples,
      },
    },
    work: true,
    handler: ({ model, ids, skip_special_tokens: skip }, ctx) =>
      withEngine(deps.models, model, ctx, async ({ engine }) => {
        const text = await engine.decode(ids, skip ?? true, ctx);
        hold(ctx, text.length);
        return { text };
      }),
  });
}

/** The answer is kept until it is written. @throws InferdError overloaded */
function hold(ctx: CallContext, bytes: number): void {
  if (!ctx.holding.take(bytes)) throw tooManyAnswers();
}

// The faces have vLLM's shapes.

function promptFace({ body }: HttpInput): unknown {
  const { prompt, ...others } = (body ?? {}) as Readonly<Record<string, unknown>>; // proof: a body is an object
  return { ...others, text: prompt };
}

function tokensFace(deps: RpcDeps, { ids, count, token_strs = undefined }: Tokenized, body: unknown): object {
  const texts = token_strs === undefined ? {} : { token_strs };
  const { model } = deps.models.find((body as { readonly model?: string | null }).model); // proof: the call was answered
  return { count, max_model_len: model.maxModelLen, tokens: ids, ...texts };
}

/** vLLM shows special tokens. */
function idsFace({ body }: HttpInput): unknown {
  const { tokens, model } = (body ?? {}) as { readonly tokens?: unknown; readonly model?: unknown };
  return { ids: tokens, model, skip_special_tokens: false };
}
