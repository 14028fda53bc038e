/** Calls of tools and reasoning in answers: their shapes, whole and streamed. The engine's answers are read as a tokenizer reads them. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { at, call, chat, connectPeer, type Setup, setup } from '../harness.js';

const create = 'chat.completions.create';
const tools = ['add', 'now'].map((name) => ({ type: 'function', function: { name } }));
const thinks = "{% if '</think>' in x %}";

interface Message {
  readonly role: string;
  readonly content?: string | null;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly ToolCall[];
}
interface ToolCall {
  readonly id: string;
  readonly type: string;
  readonly function: { readonly name: string; readonly arguments: string };
}
interface Answer {
  readonly message: Message;
  readonly finish: unknown;
  readonly usage: unknown;
}

/** Template and script of the engine. */
interface Model {
  readonly template?: string;
  readonly promptEnd?: string;
  readonly script: readonly string[];
}

function serve({ template = '', promptEnd = '', script }: Model): Setup {
  const set = setup();
  Object.assign(set.engine, { template, promptEnd, script: () => script });
  return set;
}

function answerOf(frame: unknown): Answer {
  const choice = at(frame, 'result', 'choices', 0);
  return {
    message: at(choice, 'message') as Message,
    finish: at(choice, 'finish_reason'),
    usage: at(frame, 'result', 'usage', 'completion_tokens_details'),
  };
}

async function whole(model: Model, more: object = { tools }): Promise<Answer> {
  const peer = connectPeer(serve(model).server);
  peer.say(call(1, create, chat('x', more)));
  return answerOf((await peer.hear()).at(-1));
}

/** The deltas of a stream, and the answer at its end. */
async function streamed(model: Model, more: object = { tools }): Promise<{ deltas: unknown[]; end: Answer; finishes: unknown[] }> {
  const peer = connectPeer(serve(model).server);
  peer.say(call(1, create, chat('x', { ...more, stream: true })));
  const frames = await peer.hear();
  const choices = frames.flatMap((frame) => (at(frame, 'params', 'choices') as unknown[] | undefined) ?? []);
  return {
    deltas: choices.map((choice) => at(choice, 'delta')),
    finishes: choices.map((choice) => at(choice, 'finish_reason')),
    end: answerOf(frames.at(-1)),
  };
}

/** Puts deltas together as OpenAI's clients do. @throws where a call begins without an id and a name */
function addUp(deltas: readonly unknown[]) {
  const sum = { content: '', reasoning: '', calls: [] as { name: string; arguments: string }[] };
  for (const delta of deltas) {
    sum.content += at(delta, 'content') ?? '';
    sum.reasoning += at(delta, 'reasoning_content') ?? '';
    for (const piece of (at(delta, 'tool_calls') as unknown[] | undefined) ?? []) {
      const index = at(piece, 'index') as number;
      if (index === sum.calls.length) {
        assert.match(at(piece, 'id') as string, /^\w{9,}$/);
        assert.equal(at(piece, 'type'), 'function');
        sum.calls.push({ name: at(piece, 'function', 'name') as string, arguments: '' });
      } else assert.deepEqual([at(piece, 'id'), at(piece, 'function', 'name')], [undefined, undefined]);
      const here = sum.calls[index];
      assert.ok(here);
      here.arguments += at(piece, 'function', 'arguments') as string;
    }
  }
  return sum;
}

const called = (message: Message) => (message.tool_calls ?? []).map((one) => one.function);
const hermes = (name: string, args: string): string => `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call>`;
const words = (text: string): string[] => text.match(/\s*\S+\s*/g) ?? [text];

describe('calls of tools', () => {
  const template = '<tool_call>';
  const script = words(`Well. ${hermes('add', '{"a": 1, "b": [2, 3]}')}\n${hermes('now', '{}')}`);

  test('several of one answer have ids, names and the model’s own arguments; text before them is content', async () => {
    const { message, finish } = await whole({ template, script });
    assert.equal(message.content, 'Well.');
    assert.deepEqual(called(message), [
      { name: 'add', arguments: '{"a": 1, "b": [2, 3]}' },
      { name: 'now', arguments: '{}' },
    ]);
    assert.equal(finish, 'tool_calls');
    const ids = message.tool_calls?.map((one) => one.id) ?? [];
    assert.equal(new Set(ids).size, 2);
  });

  test('streamed, a call begins with its index, id and name, and its arguments follow in pieces', async () => {
    const { deltas, end, finishes } = await streamed({ template, script });
    const sum = addUp(deltas);
    assert.deepEqual(sum, { content: 'Well.', reasoning: '', calls: called(end.message) });
    assert.equal(finishes.at(-1), 'tool_calls');
    assert.ok(finishes.slice(0, -1).every((finish) => finish === null));
    const pieces = deltas.flatMap((delta) => (at(delta, 'tool_calls') as unknown[] | undefined) ?? []);
    assert.ok(pieces.filter((piece) => at(piece, 'index') === 0).length > 2);
    assert.equal(at(pieces[0], 'id'), end.message.tool_calls?.[0]?.id);
    assert.equal('content' in end.message, false);
  });

  test('with parallel_tool_calls false only the first stays', async () => {
    const more = { tools, parallel_tool_calls: false };
    const { message, finish } = await whole({ template, script }, more);
    assert.deepEqual([message.tool_calls?.length, finish], [1, 'tool_calls']);
    assert.deepEqual(addUp((await streamed({ template, script }, more)).deltas).calls, called(message));
  });

  test('an answer that max_tokens cuts inside a call says so; behind one, and where the model ends itself, it says tool_calls', async () => {
    const cut = { tools, max_tokens: 4 };
    const inside = await whole({ template, script: ['<tool_call>', '{"name": "add",', '"arguments": {"a', '": 1', '}}'] }, cut);
    assert.deepEqual([called(inside.message), inside.finish], [[{ name: 'add', arguments: '{"a": 1' }], 'length']);
    const behind = await whole({ template, script: ['<tool_call>', '{"name": "add",', '"arguments": {}}', '</tool_call>', 'x'] }, cut);
    assert.deepEqual([called(behind.message), behind.finish], [[{ name: 'add', arguments: '{}' }], 'tool_calls']);
    const ended = await whole({ template, script: ['<tool_call>{"name": "add", "arguments": {"a": '] });
    assert.equal(ended.finish, 'tool_calls');
    const { finishes } = await streamed({ template, script: ['<tool_call>', '{"name": "add",', '"arguments": {"a', '": 1', '}}'] }, cut);
    assert.equal(finishes.at(-1), 'length');
  });

  test('only tools that are offered are called', async () => {
    const text = hermes('add', '{}');
    for (const more of [{}, { tools: [] }, { tools, tool_choice: 'none' }, { tools: tools.slice(1) }]) {
      const { message, finish } = await whole({ template, script: [text] }, more);
      assert.deepEqual([message.content, message.tool_calls, finish], [text, undefined, 'stop']);
    }
  });

  test('log-probabilities and token ids are those of all tokens, whatever is held back', async () => {
    const more = { tools, logprobs: true, return_token_ids: true };
    const peer = connectPeer(serve({ template, script }).server);
    peer.say(call(1, create, chat('x', { ...more, stream: true })));
    const choices = (await peer.hear()).flatMap((frame) => (at(frame, 'params', 'choices') as unknown[] | undefined) ?? []);
    const tokens = choices.flatMap((choice) => at(choice, 'logprobs', 'content') as { token: string }[]).map(({ token }) => token);
    assert.deepEqual(tokens, script);
    assert.equal(choices.flatMap((choice) => at(choice, 'token_ids') as number[]).length, script.length);
  });

  test('calls that are forced or strict are refused beside tokens that must come whatever their form is', async () => {
    const strict = [{ type: 'function', function: { name: 'add', strict: true, parameters: {} } }];
    for (const held of [
      { tools, tool_choice: 'required' },
      { tools, tool_choice: { type: 'function', function: { name: 'add' } } },
      { tools: strict },
    ]) {
      for (const [field, value] of [
        ['ignore_eos', true],
        ['min_tokens', 1],
      ] as const) {
        const peer = connectPeer(serve({ script: ['x'] }).server);
        peer.say(call(1, create, chat('x', { ...held, [field]: value })));
        const [frame] = await peer.hear();
        assert.deepEqual([at(frame, 'error', 'code'), at(frame, 'error', 'data', 0, 'path')], [-32602, field]);
      }
    }
    const free = { tools: strict, tool_choice: 'none', ignore_eos: true, min_tokens: 1 };
    assert.equal((await whole({ script: ['x'] }, free)).message.content, 'x');
  });

  test('a choice that is not offered is refused by its place', async () => {
    for (const [more, path] of [
      [{ tool_choice: 'required' }, 'tool_choice'],
      [{ tools, tool_choice: { type: 'function', function: { name: 'rm' } } }, 'tool_choice.function.name'],
      [{ tools, tool_choice: { type: 'function' } }, 'tool_choice'],
    ] as const) {
      const peer = connectPeer(serve({ script: ['x'] }).server);
      peer.say(call(1, create, chat('x', more)));
      assert.equal(at((await peer.hear())[0], 'error', 'data', 0, 'path'), path);
    }
  });
});

describe('reasoning', () => {
  const model: Model = { template: thinks, script: ['<think>', '\n', 'Hm', '.', '</think>', '\n\n', 'Pa', 'ris.'] };

  test('stands apart from the content, and its tokens are counted', async () => {
    const { message, finish, usage } = await whole(model, {});
    assert.deepEqual(message, { role: 'assistant', content: '\n\nParis.', reasoning_content: '\nHm.' });
    assert.deepEqual([finish, usage], ['stop', { reasoning_tokens: 3 }]);
  });

  test('is streamed before the content, and is the same', async () => {
    const { deltas, end } = await streamed(model, {});
    assert.deepEqual(addUp(deltas), { content: '\n\nParis.', reasoning: '\nHm.', calls: [] });
    assert.deepEqual([end.message.reasoning_content, end.usage], ['\nHm.', { reasoning_tokens: 3 }]);
    assert.equal(at(deltas[0], 'role'), 'assistant');
    assert.ok(deltas.every((delta) => !(at(delta, 'content') && at(delta, 'reasoning_content'))));
  });

  test('that is cut leaves the content null; one that the template opened needs no first marker', async () => {
    const { message, finish } = await whole({ template: thinks, promptEnd: '<think>\n', script: ['Hm', ' hm', ' hm'] }, { max_tokens: 2 });
    assert.deepEqual(message, { role: 'assistant', content: null, reasoning_content: 'Hm hm' });
    assert.equal(finish, 'length');
  });

  test('of a model that has none is content, and is not counted', async () => {
    const { message, usage } = await whole({ ...model, template: '' }, {});
    assert.deepEqual([message.content, usage], [model.script.join(''), undefined]);
  });

  test('reasoning_effort is a variable of the template, and none switches thinking off; template variables win', async () => {
    const argsOf = async (more: object): Promise<unknown> => {
      const set = serve(model);
      const peer = connectPeer(set.server);
      peer.say(call(1, create, chat('x', more)));
      await peer.hear();
      const prompt = set.engine.all[0]?.prompt;
      return prompt?.kind === 'chat' ? prompt.templateArgs : null;
    };
    assert.deepEqual(await argsOf({ reasoning_effort: 'low' }), { reasoning_effort: 'low' });
    assert.deepEqual(await argsOf({ reasoning_effort: 'none' }), { reasoning_effort: 'none', enable_thinking: false });
    const own = { reasoning_effort: 'none', chat_template_kwargs: { enable_thinking: true } };
    assert.deepEqual(await argsOf(own), { reasoning_effort: 'none', enable_thinking: true });
    assert.equal(await argsOf({}), undefined);
  });

  test('a budget for it is refused', async () => {
    const peer = connectPeer(serve(model).server);
    peer.say(call(1, create, chat('x', { thinking_token_budget: 10 })));
    assert.match(String(at((await peer.hear())[0], 'error', 'message')), /thinking_token_budget is not supported/);
  });
});

test('an assistant that said nothing is empty text, with its reasoning; others must say something', async () => {
  const set = serve({ script: ['x'] });
  const peer = connectPeer(set.server);
  const messages = [{ role: 'user', content: 'x' }, { role: 'assistant', content: null, reasoning_content: 'Hm.' }, { role: 'assistant' }];
  peer.say(call(1, create, { messages }));
  await peer.hear();
  const prompt = set.engine.all[0]?.prompt;
  assert.deepEqual(prompt?.kind === 'chat' && prompt.messages.slice(1), [
    { role: 'assistant', content: '', reasoning_content: 'Hm.' },
    { role: 'assistant', content: '' },
  ]);
  peer.say(call(2, create, { messages: [{ role: 'user', content: null }] }));
  assert.equal(at((await peer.hear())[0], 'error', 'data', 0, 'path'), 'messages[0].content');
});

test('streamed and whole answers are equal, calls and reasoning too, whatever the model writes', async () => {
  const part = fc.oneof(
    fc.constantFrom('<tool_call>', '</tool_call>', '[TOOL_CALLS]', '[', ']', 'add', '[ARGS]', '{"a": 1}', ' ', '\n', '; '),
    fc.constantFrom('{"name": "add", "arguments": {"a": 1}}', '{"name": "now", ', '"parameters": {', '"b": 2', '}', '}}', '[add(a=1)]'),
    fc.constantFrom('<think>', '</think>', 'Hm', '😀'),
    fc.string({ unit: 'grapheme', maxLength: 4 }),
  );
  const templates = fc.constantFrom('', '<tool_call></think>', '[TOOL_CALLS]', '[TOOL_CALLS][ARGS][/THINK]', '[f(x=1)]', '<tool_call>');
  await fc.assert(
    fc.asyncProperty(templates, fc.array(part, { minLength: 1, maxLength: 14 }), async (template, script) => {
      const model = { template, script };
      const { message, finish, usage } = await whole(model);
      const { deltas, end, finishes } = await streamed(model);
      const sum = addUp(deltas);
      assert.deepEqual(sum, { content: message.content ?? '', reasoning: message.reasoning_content ?? '', calls: called(message) });
      assert.deepEqual([called(end.message), end.message.reasoning_content], [called(message), message.reasoning_content]);
      assert.deepEqual([end.finish, finishes.at(-1), end.usage], [finish, finish, usage]);
      assert.equal(finish === 'tool_calls', sum.calls.length > 0);
    }),
    { numRuns: 150 },
  );
});
