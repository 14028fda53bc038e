/** Calls of POST /v1/responses. */
import type { Example } from '../../method.js';

const usage = {
  input_tokens: 22,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: 14,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 36,
};
const told = {
  max_output_tokens: 32,
  metadata: {},
  parallel_tool_calls: true,
  previous_response_id: null,
  reasoning: { effort: null, summary: null },
  store: false as const,
  background: false as const,
  temperature: 0,
  top_p: null,
  top_logprobs: 0,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  truncation: 'disabled',
  user: null,
};
const response = (more: object) => ({
  id: 'resp_0c5f9f0e-7f0e-4f6a-9d0a-3c1b7c8f2a11',
  object: 'response',
  created_at: 1764000000,
  status: 'completed',
  error: null,
  incomplete_details: null,
  model: 'demo',
  instructions: null,
  ...told,
  ...more,
});
const message = (id: string, status: string, text: string | null) => ({
  id,
  type: 'message',
  status,
  role: 'assistant',
  content: text === null ? [] : [{ type: 'output_text', text, annotations: [], logprobs: [] }],
});
const MESSAGE = 'msg_4f6a9d0a3c1b7c8f2a110c5f9f0e7f0e';
const text = '123 + 456 = 579';
const place = { item_id: MESSAGE, output_index: 0, content_index: 0 };
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const weather = { type: 'function', name: 'get_weather', description: '', parameters };

export const responsesExamples: readonly Example[] = [
  {
    name: 'A question',
    params: { model: 'demo', input: 'What is 123 + 456?', temperature: 0, max_output_tokens: 32 },
    result: response({ output: [message(MESSAGE, 'completed', text)], usage }),
  },
  {
    name: 'A tool',
    params: { model: 'demo', input: 'Tell me the weather in Lisbon.', tools: [weather], temperature: 0, max_output_tokens: 64 },
    result: response({
      max_output_tokens: 64,
      tools: [weather],
      output: [
        {
          id: 'fc_5b7d2c1a4b8e4a528a0f9e6f1d2c3b44',
          type: 'function_call',
          status: 'completed',
          call_id: 'call_7d2c1a4b8e4a528a0f9e6f1d',
          name: 'get_weather',
          arguments: '{"city": "Lisbon"}',
        },
      ],
      usage: { ...usage, input_tokens: 39, output_tokens: 19, total_tokens: 58 },
    }),
  },
  {
    name: 'Streamed',
    params: { model: 'demo', input: 'What is 123 + 456?', temperature: 0, max_output_tokens: 32, stream: true },
    result: null,
    events: [
      { type: 'response.created', response: response({ status: 'in_progress', output: [], usage: null }) },
      { type: 'response.in_progress', response: response({ status: 'in_progress', output: [], usage: null }) },
      { type: 'response.output_item.added', output_index: 0, item: message(MESSAGE, 'in_progress', null) },
      { type: 'response.content_part.added', ...place, part: { type: 'output_text', text: '', annotations: [], logprobs: [] } },
      { type: 'response.output_text.delta', ...place, delta: '123 + 456', logprobs: [] },
      { type: 'response.output_text.delta', ...place, delta: ' = 579', logprobs: [] },
      { type: 'response.output_text.done', ...place, text, logprobs: [] },
      { type: 'response.content_part.done', ...place, part: { type: 'output_text', text, annotations: [], logprobs: [] } },
      { type: 'response.output_item.done', output_index: 0, item: message(MESSAGE, 'completed', text) },
      { type: 'response.completed', response: response({ output: [message(MESSAGE, 'completed', text)], usage }) },
    ].map((event, sequence_number) => ({ ...event, sequence_number })),
  },
];
