/** /api/chat, /api/generate, /api/embed and /api/embeddings. */
import { z } from 'zod';
import type { Ask, Face } from '../../face.js';
import type { ChatCompletion } from '../../schemas/chat.js';
import type { Completion } from '../../schemas/completion.js';
import type { EmbeddingList } from '../../schemas/embedding.js';
import { checkBody } from '../chat/check.js';
import { chatShape, gainedOf, generateShape, lastLine, line, nanoseconds, nothing, type Shape } from './answer.js';
import { ollama } from './errors.js';
import { chatExamples, embeddingsExamples, embedExamples, generateExamples } from './examples.js';
import { chatParams, generateParams, nameOf, names } from './params.js';
import {
  chatAnswer,
  chatBody,
  embedAnswer,
  embedBody,
  embeddingsAnswer,
  embeddingsBody,
  errorEvent,
  generateAnswer,
  generateBody,
} from './schema.js';
import { lines } from './stream.js';

const route = { verb: 'POST', reads: true, access: 'infer', dialect: ollama, names } as const;
const generation = { group: 'Ollama', streamed: 'application/x-ndjson' } as const;

/** A body without a prompt: the model is loaded, or unloaded where it is not to be kept. */
function aboutModel(model: string, keepAlive: unknown, shape: Shape): Ask {
  const unload = keepAlive === 0 || keepAlive === '0' || keepAlive === '0s';
  const told = { ...line(model, shape, nothing), done: true, done_reason: unload ? 'unload' : 'load' };
  return unload
    ? { method: 'models.unload', params: { model: nameOf(model) }, answer: () => told }
    : // The least that needs its engine.
      { method: 'tokenize', params: { model: nameOf(model), text: '' }, answer: () => told };
}

function generating(model: string, shape: Shape, method: string, params: unknown): Ask {
  return {
    method,
    params,
    answer: (result) => {
      const whole = result as ChatCompletion | Completion; // proof: of these methods
      return lastLine(model, shape, gainedOf(whole), whole);
    },
    stream: lines(model, shape),
  };
}

function embedding(
  model: string,
  input: unknown,
  dimensions: number | null | undefined,
  shape: (list: EmbeddingList, ns: number) => object,
): Ask {
  const began = performance.now();
  return {
    method: 'embeddings.create',
    params: { model: nameOf(model), input, dimensions },
    answer: (result) => shape(result as EmbeddingList, nanoseconds((performance.now() - began) / 1000)), // proof: of that method
  };
}

/** Of a list of floats. */
const vectors = ({ data }: EmbeddingList) => data.map(({ embedding: vector }) => vector);

export const generateFaces: readonly Face[] = [
  {
    ...route,
    id: 'ollama.chat',
    path: '/api/chat',
    ask: ({ body }) => {
      const asked = checkBody(chatBody, body);
      if ((asked.messages ?? []).length === 0) return aboutModel(asked.model, asked.keep_alive, chatShape);
      return generating(asked.model, chatShape, 'chat.completions.create', chatParams(asked));
    },
    about: {
      ...generation,
      methods: ['chat.completions.create', 'tokenize', 'models.unload'],
      summary: "Answers a conversation, as Ollama's /api/chat.",
      params: chatBody,
      result: chatAnswer,
      event: z.union([chatAnswer, errorEvent]),
      examples: chatExamples,
    },
  },
  {
    ...route,
    id: 'ollama.generate',
    path: '/api/generate',
    ask: ({ body }) => {
      const asked = checkBody(generateBody, body);
      const { method, params } = generateParams(asked);
      if ((asked.prompt ?? '') === '') return aboutModel(asked.model, asked.keep_alive, generateShape);
      return generating(asked.model, generateShape, method, params);
    },
    about: {
      ...generation,
      methods: ['chat.completions.create', 'completions.create', 'tokenize', 'models.unload'],
      summary: "Answers a prompt, or goes on with a raw one, as Ollama's /api/generate.",
      params: generateBody,
      result: generateAnswer,
      event: z.union([generateAnswer, errorEvent]),
      examples: generateExamples,
    },
  },
  {
    ...route,
    id: 'ollama.embed',
    path: '/api/embed',
    ask: ({ body }) => {
      const { model, input, dimensions } = checkBody(embedBody, body);
      return embedding(model, input, dimensions, (list, total) => ({
        model,
        embeddings: vectors(list),
        total_duration: total,
        load_duration: 0,
        prompt_eval_count: list.usage.prompt_tokens,
      }));
    },
    about: {
      group: 'Ollama',
      methods: ['embeddings.create'],
      summary: "A vector for each of one or more texts, as Ollama's /api/embed.",
      params: embedBody,
      result: embedAnswer,
      examples: embedExamples,
    },
  },
  {
    ...route,
    id: 'ollama.embeddings',
    path: '/api/embeddings',
    names: { ...names, input: 'prompt' },
    ask: ({ body }) => {
      const { model, prompt } = checkBody(embeddingsBody, body);
      return embedding(model, prompt, undefined, (list) => ({ embedding: vectors(list)[0] }));
    },
    about: {
      group: 'Ollama',
      methods: ['embeddings.create'],
      summary: "The vector of a text, as Ollama's older /api/embeddings.",
      params: embeddingsBody,
      result: embeddingsAnswer,
      examples: embeddingsExamples,
    },
  },
];
