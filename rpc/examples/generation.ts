/** Calls of chat.completions.create and completions.create. */
import type { Example } from '../method.js';

const usage = (prompt: number, completion: number) => ({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: prompt + completion,
  prompt_tokens_details: { cached_tokens: 0 },
  ttft_s: 0.012,
  tpot_s: 0.004,
  latency_s: 0.05,
  queue_s: 0.001,
});
const chatHead = { id: 'chatcmpl-0c5f9f0e-7f0e-4f6a-9d0a-3c1b7c8f2a11', object: 'chat.completion', created: 1764000000, model: 'demo' };
const textHead = { id: 'cmpl-5b7d2c1a-4b8e-4a52-8a0f-9e6f1d2c3b44', object: 'text_completion', created: 1764000000, model: 'demo' };
const stopped = { logprobs: null, finish_reason: 'stop' };
const cut = { logprobs: null, finish_reason: 'length' };

const question = [{ role: 'user', content: 'What is 123 + 456?' }];

export const chatExamples: readonly Example[] = [
  {
    name: 'A question',
    params: { model: 'demo', messages: question, temperature: 0, max_tokens: 32 },
    result: {
      ...chatHead,
      choices: [{ index: 0, message: { role: 'assistant', content: '123 + 456 = 579' }, ...stopped }],
      usage: usage(22, 14),
    },
  },
  {
    name: 'Streamed',
    params: { model: 'demo', messages: question, temperature: 0, max_tokens: 32, stream: true },
    result: { ...chatHead, choices: [{ index: 0, message: { role: 'assistant' }, ...stopped }], usage: usage(22, 14) },
    deltas: [
      [{ index: 0, delta: { role: 'assistant', content: '123 + ' }, finish_reason: null }],
      [{ index: 0, delta: { content: '456 = ' }, finish_reason: null }],
      [{ index: 0, delta: { content: '579' }, finish_reason: 'stop' }],
    ],
  },
  {
    name: 'A conversation, with sampling',
    params: {
      model: 'demo',
      messages: [
        { role: 'system', content: 'Answer in one sentence.' },
        { role: 'user', content: 'Who are you?' },
        { role: 'assistant', content: 'I am a tiny demo model.' },
        { role: 'user', content: 'What is the capital of France?' },
      ],
      max_tokens: 24,
      temperature: 0.7,
      top_p: 0.9,
      seed: 7,
      stop: ['\n'],
    },
    result: {
      ...chatHead,
      choices: [{ index: 0, message: { role: 'assistant', content: 'The capital of France is Paris.' }, ...stopped }],
      usage: usage(48, 8),
    },
  },
];

/** A first token and how likely it was; more has its log-probabilities in the same lists. */
const likely = (token: string, logprob: number) => ({
  text_offset: [0],
  token_logprobs: [logprob],
  tokens: [token],
  top_logprobs: [{ [token]: logprob }],
});

export const completionExamples: readonly Example[] = [
  {
    name: 'A text to go on with',
    params: { model: 'demo', prompt: 'I am a tiny', temperature: 0, max_tokens: 10 },
    result: {
      ...textHead,
      choices: [{ index: 0, text: ' demo model. I can add numbers, name capitals', ...cut }],
      usage: usage(5, 10),
    },
  },
  {
    name: 'Streamed',
    params: { model: 'demo', prompt: 'I am a tiny', temperature: 0, max_tokens: 10, stream: true },
    result: { ...textHead, choices: [{ index: 0, ...cut }], usage: usage(5, 10) },
    deltas: [
      [{ index: 0, text: ' demo model.', finish_reason: null }],
      [{ index: 0, text: ' I can add numbers, name capitals', finish_reason: 'length' }],
    ],
  },
  {
    name: 'Two texts, with log-probabilities',
    params: { model: 'demo', prompt: ['The capital of France is', 'The capital of Italy is'], temperature: 0, max_tokens: 1, logprobs: 1 },
    result: {
      ...textHead,
      choices: [
        { index: 0, text: ' Paris', logprobs: likely(' Paris', -0.00007), finish_reason: 'length' },
        { index: 1, text: ' Rome', logprobs: likely(' Rome', -0.0065), finish_reason: 'length' },
      ],
      usage: usage(13, 2),
    },
  },
];
