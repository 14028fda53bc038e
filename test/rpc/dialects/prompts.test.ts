/** What the model sees of a conversation is the same in every dialect: the prompts that the engine gets are compared with those of a chat. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PromptInput } from '../../../actors/messages/requests.js';
import { at } from '../harness.js';
import { ask, serve } from './asking.js';

const served = serve({ script: ['ok'] });

/** The prompt and parameters that a body becomes; ids of calls are left out where a dialect has none. */
async function seen(face: string, body: object): Promise<{ prompt: PromptInput; max: number | null }> {
  let got: { prompt: PromptInput; max: number | null } | null = null;
  served.engine.script = (prompt, { maxTokens }) => {
    got = { prompt, max: maxTokens };
    return ['ok'];
  };
  const { reply } = await ask(served, face, body);
  assert.equal(reply.status, 200, reply.body ?? '');
  assert.ok(got !== null);
  return JSON.parse(JSON.stringify(got)) as { prompt: PromptInput; max: number | null };
}

async function refusal(face: string, body: object): Promise<string> {
  const { reply, body: error } = await ask(served, face, body);
  assert.equal(reply.status, 400, JSON.stringify(body));
  return String(at(error, 'error', 'message') ?? at(error, 'error'));
}

const parameters = { type: 'object', properties: { city: { type: 'string' } } };
const args = { city: 'Lisbon' };
const argsText = JSON.stringify(args);

/** A conversation with everything that has a place in all of them. */
const chat = {
  messages: [
    { role: 'system', content: 'Be kind.' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'The weather' },
        { type: 'text', text: 'in Lisbon?' },
      ],
    },
    {
      role: 'assistant',
      content: 'I look.',
      reasoning_content: 'Hm.',
      tool_calls: [
        { id: 'a', type: 'function', function: { name: 'weather', arguments: argsText } },
        { id: 'b', type: 'function', function: { name: 'time', arguments: '{}' } },
      ],
    },
    { role: 'tool', tool_call_id: 'a', content: 'Sunny.' },
    { role: 'tool', tool_call_id: 'b', content: 'Noon.' },
    { role: 'user', content: 'Thanks.' },
  ],
  tools: ['weather', 'time'].map((name) => ({ type: 'function', function: { name, description: 'd', parameters } })),
  max_tokens: 7,
};

describe('prompts of the dialects', () => {
  test('of Responses', async () => {
    const body = {
      instructions: 'Be kind.',
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'The weather' },
            { type: 'input_text', text: 'in Lisbon?' },
          ],
        },
        { type: 'reasoning', id: 'rs_1', summary: [], content: [{ type: 'reasoning_text', text: 'Hm.' }] },
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I look.', annotations: [] }] },
        { type: 'function_call', call_id: 'a', name: 'weather', arguments: argsText },
        { type: 'function_call', call_id: 'b', name: 'time', arguments: '{}' },
        { type: 'function_call_output', call_id: 'a', output: 'Sunny.' },
        { type: 'function_call_output', call_id: 'b', output: [{ type: 'input_text', text: 'Noon.' }] },
        { role: 'user', content: 'Thanks.' },
      ],
      tools: ['weather', 'time'].map((name) => ({ type: 'function', name, description: 'd', parameters })),
      max_output_tokens: 7,
    };
    assert.deepEqual(await seen('responses.create', body), await seen('chat.completions.create', chat));
  });

  test('of Messages, and of its counts', async () => {
    const body = {
      model: 'fake',
      system: 'Be kind.',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'The weather' },
            { type: 'text', text: 'in Lisbon?' },
          ],
        },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'Hm.', signature: '' },
            { type: 'redacted_thinking', data: 'x' },
            { type: 'text', text: 'I look.' },
            { type: 'tool_use', id: 'a', name: 'weather', input: args },
            { type: 'tool_use', id: 'b', name: 'time', input: {} },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'tool_result', tool_use_id: 'a', content: 'Sunny.' },
            { type: 'tool_result', tool_use_id: 'b', content: [{ type: 'text', text: 'Noon.' }], is_error: false },
            { type: 'text', text: 'Thanks.' },
          ],
        },
      ],
      tools: ['weather', 'time'].map((name) => ({ name, description: 'd', input_schema: parameters })),
      max_tokens: 7,
    };
    assert.deepEqual(await seen('messages.create', body), await seen('chat.completions.create', chat));
  });

  test('of Ollama, whose results name their tool', async () => {
    const [system, , assistant] = chat.messages;
    const body = {
      model: 'fake',
      stream: false,
      messages: [
        system,
        { role: 'user', content: 'The weather\nin Lisbon?' },
        {
          role: 'assistant',
          content: 'I look.',
          thinking: 'Hm.',
          tool_calls: [{ function: { name: 'weather', arguments: args } }, { function: { name: 'time', arguments: {} } }],
        },
        { role: 'tool', tool_name: 'time', content: 'Noon.' },
        { role: 'tool', tool_name: 'weather', content: 'Sunny.' },
        { role: 'user', content: 'Thanks.' },
      ],
      tools: chat.tools,
      options: { num_predict: 7, num_ctx: 512, num_thread: 2 },
    };
    const calls = assistant?.tool_calls?.map((one, i) => ({ ...one, id: `call_2_${i}` }));
    const same = {
      ...chat,
      messages: [
        system,
        { role: 'user', content: 'The weather\nin Lisbon?' },
        { ...assistant, tool_calls: calls },
        { role: 'tool', tool_call_id: 'call_2_1', name: 'time', content: 'Noon.' },
        { role: 'tool', tool_call_id: 'call_2_0', name: 'weather', content: 'Sunny.' },
        { role: 'user', content: 'Thanks.' },
      ],
    };
    assert.deepEqual(await seen('ollama.chat', body), await seen('chat.completions.create', same));
  });

  test('what is said of reasoning reaches the template', async () => {
    const templateArgs = async (face: string, body: object) => at((await seen(face, body)).prompt, 'templateArgs');
    const messages = [{ role: 'user', content: 'x' }];
    const message = { model: 'fake', max_tokens: 3, messages };
    assert.deepEqual(await templateArgs('responses.create', { input: 'x', reasoning: { effort: 'low', summary: 'auto' } }), {
      reasoning_effort: 'low',
    });
    assert.deepEqual(await templateArgs('messages.create', { ...message, thinking: { type: 'enabled', budget_tokens: 1024 } }), {
      enable_thinking: true,
    });
    assert.deepEqual(await templateArgs('messages.create', { ...message, thinking: { type: 'disabled' } }), { enable_thinking: false });
    assert.deepEqual(await templateArgs('ollama.chat', { model: 'fake', messages, stream: false, think: false }), {
      enable_thinking: false,
    });
    assert.deepEqual(await templateArgs('ollama.generate', { model: 'fake', prompt: 'x', stream: false, think: 'high' }), {
      reasoning_effort: 'high',
    });
  });

  test('a raw prompt goes on for as many tokens as fit, and a body without one only needs the engine', async () => {
    const raw = await seen('ollama.generate', { model: 'fake', prompt: 'Once', raw: true, stream: false });
    assert.deepEqual([raw.prompt.kind, raw.max], ['text', null]);
    assert.equal((await seen('completions.create', { prompt: 'Once' })).max, 16);
    for (const face of ['ollama.generate', 'ollama.chat']) {
      const { body } = await ask(served, face, { model: 'fake' });
      assert.deepEqual([at(body, 'done'), at(body, 'done_reason')], [true, 'load']);
    }
  });

  test('nothing that is neither text nor a call is taken, and its place is named', async () => {
    const input = (item: object) => ({ input: [item] });
    const part = (type: string) => input({ role: 'user', content: [{ type }] });
    const block = (type: string) => ({ model: 'fake', max_tokens: 3, messages: [{ role: 'user', content: [{ type }] }] });
    const cases: readonly (readonly [face: string, body: object, said: RegExp])[] = [
      ['responses.create', part('input_image'), /^input\[0\]\.content\[0\]: images/],
      ['responses.create', part('input_audio'), /^input\[0\]\.content\[0\]: audio/],
      ['responses.create', part('input_file'), /^input\[0\]\.content\[0\]: files/],
      ['responses.create', part('hologram'), /^input\[0\]\.content\[0\]: parts of type "hologram"/],
      ['responses.create', part('input_text'), /input\[0\]\.content\[0\]\.text: is required/],
      ['responses.create', input({ type: 'computer_call' }), /^input\[0\]: items of type "computer_call"/],
      ['responses.create', input({ type: 'function_call', name: 'x' }), /input\[0\]\.call_id: is required/],
      ['responses.create', input({ content: 'x' }), /input\[0\]\.type: is required/],
      ['responses.create', { input: 7 }, /input: must be a text, or a list/],
      ['responses.create', { input: 'x', prompt: { id: 'pmpt_1' } }, /^prompt: /],
      ['responses.create', { input: 'x', include: ['everything'] }, /include/],
      ['responses.create', { input: 'x', text: { verbosity: 'low' } }, /^text\.verbosity/],
      ['responses.create', { input: 'x', text: { format: { type: 'json_schema' } } }, /text\.format\.schema: is required/],
      ['responses.create', { input: 'x', reasoning: { effort: 'endless' } }, /reasoning\.effort/],
      ['responses.create', { input: 'x', tool_choice: { type: 'hosted' } }, /^tool_choice\.type/],
      ['responses.create', { input: 'x', thinking_token_budget: 3 }, /thinking_token_budget/],
      ['messages.create', block('image'), /^messages\[0\]\.content\[0\]: images/],
      ['messages.create', block('document'), /^messages\[0\]\.content\[0\]: files/],
      ['messages.create', block('hologram'), /^messages\[0\]\.content\[0\]: blocks of type "hologram"/],
      ['messages.create', block('text'), /messages\[0\]\.content\[0\]\.text: is required/],
      ['messages.count_tokens', block('image'), /^messages\[0\]\.content\[0\]: images/],
      ['messages.create', { ...block('x'), container: 'c' }, /^container: /],
      ['ollama.chat', { model: 'fake', messages: [{ role: 'user', content: 'x', images: ['AA=='] }] }, /^messages\[0\]\.images: images/],
      ['ollama.chat', { model: 'fake', messages: [{ role: 'tool', content: null }] }, /messages\[0\]\.content/],
    ];
    for (const [face, body, said] of cases) assert.match(await refusal(face, body), said);
  });

  test('params of the methods are called as the body calls them', async () => {
    const message = { model: 'fake', max_tokens: 3, messages: [{ role: 'user', content: 'x' }] };
    assert.match(await refusal('messages.create', { ...message, tools: [{ name: 'a' }, { name: 'a' }] }), /tools: must not name/);
    assert.match(
      await refusal('responses.create', { input: 'x', tools: [{ type: 'function', name: 'not a name' }] }),
      /tools\[0\]\.name: must be/,
    );
    assert.match(await refusal('ollama.chat', { ...message, options: { num_predict: 1.5 } }), /options\.num_predict: must be an integer/);
    assert.match(await refusal('ollama.embeddings', { model: 'fake', prompt: '' }), /prompt: must be/);
  });
});
