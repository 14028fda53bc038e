/** Calls of tokenize and detokenize, and of their HTTP faces, which have vLLM's shapes. */
import type { Example } from '../method.js';

const text = 'What is 123 + 456?';
const ids = [4088, 355, 268, 220, 16, 17, 18, 393, 220, 19, 20, 21, 30];
const messages = [{ role: 'user', content: 'Who are you?' }];
const chatIds = [4088, 4090, 294, 4091, 256, 1031, 346, 319, 30, 4092, 4090, 295, 4091, 256];

export const tokenizeExamples: readonly Example[] = [
  { name: 'A text', params: { text }, result: { ids, count: ids.length } },
  { name: 'A conversation in the template of the model', params: { messages }, result: { ids: chatIds, count: chatIds.length } },
];

export const tokenizeFaceExamples: readonly Example[] = [
  { name: 'A text', params: { prompt: text }, result: { count: ids.length, max_model_len: 4096, tokens: ids } },
  {
    name: 'A conversation in the template of the model',
    params: { messages },
    result: { count: chatIds.length, max_model_len: 4096, tokens: chatIds },
  },
];

export const detokenizeExamples: readonly Example[] = [{ name: 'Token ids', params: { ids }, result: { text } }];
export const detokenizeFaceExamples: readonly Example[] = [
  { name: 'Token ids', params: { tokens: ids }, result: { prompt: `<|begin_of_text|>${text}` } },
];
