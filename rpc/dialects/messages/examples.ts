/** Calls of POST /v1/messages and /v1/messages/count_tokens. */
import type { Example } from '../../method.js';

const usage = { input_tokens: 22, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 14 };
const head = { id: 'msg_0c5f9f0e-7f0e-4f6a-9d0a-3c1b7c8f2a11', type: 'message', role: 'assistant', model: 'demo' };
const question = [{ role: 'user', content: 'What is 123 + 456?' }];
const inputSchema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ name: 'get_weather', description: '', input_schema: inputSchema }];
const text = (said: string) => ({ type: 'text', text: said, citations: null });

export const messagesExamples: readonly Example[] = [
  {
    name: 'A question',
    params: { model: 'demo', messages: question, temperature: 0, max_tokens: 32 },
    result: { ...head, content: [text('123 + 456 = 579')], stop_reason: 'end_turn', stop_sequence: null, usage },
  },
  {
    name: 'A tool',
    params: {
      model: 'demo',
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Tell me the weather in Lisbon.' }] }],
      tools,
      temperature: 0,
      max_tokens: 64,
    },
    result: {
      ...head,
      content: [{ type: 'tool_use', id: 'call_7d2c1a4b8e4a528a0f9e6f1d', name: 'get_weather', input: { city: 'Lisbon' } }],
      stop_reason: 'tool_use',
      stop_sequence: null,
      usage: { ...usage, input_tokens: 39, output_tokens: 19 },
    },
  },
  {
    name: 'Streamed',
    params: { model: 'demo', messages: question, temperature: 0, max_tokens: 32, stream: true },
    result: null,
    events: [
      {
        type: 'message_start',
        message: { ...head, content: [], stop_reason: null, stop_sequence: null, usage: { ...usage, output_tokens: 1 } },
      },
      { type: 'content_block_start', index: 0, content_block: text('') },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: '123 + 456' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: ' = 579' } },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage },
      { type: 'message_stop' },
    ],
  },
];

export const countExamples: readonly Example[] = [
  { name: 'A question', params: { model: 'demo', messages: question }, result: { input_tokens: 22 } },
];
