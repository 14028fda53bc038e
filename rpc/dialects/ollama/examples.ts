/** Calls of Ollama's routes. */
import type { Example } from '../../method.js';

const options = { temperature: 0, num_predict: 32 };
const messages = [{ role: 'user', content: 'What is 123 + 456?' }];
const head = { model: 'demo', created_at: '2025-11-24T16:00:00.000Z' };
const end = {
  done: true,
  done_reason: 'stop',
  total_duration: 50_000_000,
  load_duration: 0,
  prompt_eval_count: 22,
  prompt_eval_duration: 12_000_000,
  eval_count: 14,
  eval_duration: 38_000_000,
};
const said = (content: string) => ({ message: { role: 'assistant', content } });
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ type: 'function', function: { name: 'get_weather', description: '', parameters } }];

export const chatExamples: readonly Example[] = [
  {
    name: 'A question',
    params: { model: 'demo', messages, options, stream: false },
    result: { ...head, ...said('123 + 456 = 579'), ...end },
  },
  {
    name: 'A tool',
    params: { model: 'demo', messages: [{ role: 'user', content: 'Tell me the weather in Lisbon.' }], tools, options, stream: false },
    result: {
      ...head,
      message: {
        role: 'assistant',
        content: '',
        tool_calls: [{ function: { name: 'get_weather', arguments: { city: 'Lisbon' } } }],
      },
      ...end,
    },
  },
  {
    name: 'Streamed',
    params: { model: 'demo:latest', messages, options },
    result: null,
    events: [
      { ...head, model: 'demo:latest', ...said('123 + 456'), done: false },
      { ...head, model: 'demo:latest', ...said(' = 579'), done: false },
      { ...head, model: 'demo:latest', ...said(''), ...end },
    ],
  },
];

export const generateExamples: readonly Example[] = [
  {
    name: 'A prompt',
    params: { model: 'demo', prompt: 'What is 123 + 456?', options, stream: false },
    result: { ...head, response: '123 + 456 = 579', ...end },
  },
  {
    name: 'A raw prompt',
    params: { model: 'demo', prompt: 'I am a tiny', raw: true, options: { temperature: 0, num_predict: 10 }, stream: false },
    result: { ...head, response: ' demo model. I can add numbers, name capitals', ...end, done_reason: 'length' },
  },
  {
    name: 'Streamed',
    params: { model: 'demo', prompt: 'What is 123 + 456?', options },
    result: null,
    events: [
      { ...head, response: '123 + 456', done: false },
      { ...head, response: ' = 579', done: false },
      { ...head, response: '', ...end },
    ],
  },
  {
    name: 'Loading a model',
    params: { model: 'demo' },
    result: { ...head, response: '', done: true, done_reason: 'load' },
  },
];

export const embedExamples: readonly Example[] = [
  {
    name: 'Two texts',
    params: { model: 'demo', input: ['A fox.', 'A story about a fox.'], dimensions: 2 },
    result: { model: 'demo', embeddings: [[0.6, 0.8]], total_duration: 12_000_000, load_duration: 0, prompt_eval_count: 11 },
  },
];

export const embeddingsExamples: readonly Example[] = [
  { name: 'A text', params: { model: 'demo', prompt: 'A fox.' }, result: { embedding: [0.01, -0.02] } },
];

export const showExamples: readonly Example[] = [
  {
    name: 'A model',
    params: { model: 'demo' },
    result: {
      license: '',
      modelfile: '',
      parameters: '',
      template: '',
      details: {
        parent_model: '',
        format: 'safetensors',
        family: 'llama',
        families: ['llama'],
        parameter_size: '7.3M',
        quantization_level: 'BF16',
      },
      model_info: {
        'general.architecture': 'llama',
        'general.parameter_count': 7_300_000,
        'llama.context_length': 4096,
        'llama.vocab_size': 4096,
      },
      capabilities: ['completion', 'tools'],
      modified_at: '2025-11-24T16:00:00.000Z',
    },
  },
];

export const pullExamples: readonly Example[] = [
  { name: 'The embedded model, which is there already', params: { model: 'demo', stream: false }, result: { status: 'success' } },
  { name: 'Streamed', params: { model: 'demo' }, result: null, events: [{ status: 'success' }] },
];

export const deleteExamples: readonly Example[] = [{ name: 'A model', params: { model: 'org/tiny' }, result: { status: 'success' } }];
