/** OpenAI's own client and Vercel's, unmodified, against a daemon with the demo model. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';

let at: TestDaemon;
let client: OpenAI;
before(async () => {
  at = await startTestDaemon();
  client = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => at.close());

const model = 'demo';
const messages = [{ role: 'user' as const, content: 'What is your name?' }];
const seeded = { model, messages, seed: 7, max_tokens: 24 };

test('models are listed and got by name', async () => {
  const listed = [];
  for await (const one of client.models.list()) listed.push(one.id);
  assert.deepEqual(listed, [model]);
  assert.equal((await client.models.retrieve(model)).object, 'model');
  await assert.rejects(client.models.retrieve('some/other'), OpenAI.NotFoundError);
});

test('a chat answer streamed is the answer given whole, with the usage where it is asked for', async () => {
  const whole = await client.chat.completions.create(seeded);
  const stream = await client.chat.completions.create({ ...seeded, stream: true, stream_options: { include_usage: true } });
  let text = '';
  let finish: string | null = null;
  let usage: OpenAI.CompletionUsage | null = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish ??= chunk.choices[0]?.finish_reason ?? null;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0]?.message.content);
  assert.equal(finish, whole.choices[0]?.finish_reason);
  assert.equal(usage?.completion_tokens, whole.usage?.completion_tokens);
  assert.equal(usage?.prompt_tokens, whole.usage?.prompt_tokens);
});

test("the client's stream helper puts the answer together", async () => {
  const runner = client.chat.completions.stream({ ...seeded, stream_options: { include_usage: true } });
  const deltas: string[] = [];
  runner.on('content', (delta) => void deltas.push(delta));
  const final = await runner.finalChatCompletion();
  assert.equal(deltas.join(''), final.choices[0]?.message.content);
  assert.ok((final.usage?.total_tokens ?? 0) > 0);
});

test('log-probabilities of a chat answer, streamed and whole', async () => {
  const asked = { ...seeded, logprobs: true, top_logprobs: 2 };
  const whole = (await client.chat.completions.create(asked)).choices[0]?.logprobs?.content ?? [];
  const streamed = [];
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []));
  }
  assert.ok(whole.length > 1 && whole.every((entry) => entry.top_logprobs.length === 2));
  assert.deepEqual(streamed, whole);
});

test('text completions: lists of prompts, token ids, echo, log-probabilities, several answers', async () => {
  const asked = { model, prompt: ['Once upon a time', 'The cat'], max_tokens: 6, n: 2, seed: 3, logprobs: 1, echo: true };
  const { choices } = await client.completions.create(asked);
  assert.deepEqual(
    choices.map(({ index }) => index),
    [0, 1, 2, 3],
  );
  assert.match(choices[0]?.text ?? '', /^Once upon a time/);
  assert.equal(choices[0]?.logprobs?.token_logprobs?.[0], null);
  const texts = ['', '', '', ''];
  for await (const chunk of await client.completions.create({ ...asked, stream: true })) {
    for (const choice of chunk.choices) texts[choice.index] += choice.text;
  }
  assert.deepEqual(
    texts,
    choices.map(({ text }) => text),
  );
  const byIds = await client.completions.create({ model, prompt: [1, 2, 3], max_tokens: 2 });
  assert.equal(byIds.usage?.prompt_tokens, 3);
});

test('several greedy answers are allowed, and equal', async () => {
  const { choices } = await client.chat.completions.create({ ...seeded, n: 2, temperature: 0 });
  assert.equal(choices[0]?.message.content, choices[1]?.message.content);
});

test('errors come as the classes of the client, with all four fields', async () => {
  const wrong = { ...seeded, temperature: -1 };
  await assert.rejects(client.chat.completions.create(wrong), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.deepEqual([error.type, error.param, error.code], ['invalid_request_error', 'temperature', 'invalid_params']);
    return true;
  });
  await assert.rejects(client.chat.completions.create({ ...seeded, stream: true, model: 'other' }), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ ...seeded, model: '' }), OpenAI.BadRequestError);
  await assert.rejects(client.chat.completions.create({ ...seeded, max_tokens: 100_000 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, 'context_length_exceeded');
    return true;
  });
});

test('a client that aborts its stream has its request ended and its blocks freed', async () => {
  const stream = await client.chat.completions.create({
    model,
    messages,
    max_tokens: 2000,
    stream: true,
    // Goes on for long: what it would not say is of no interest here.
    ...{ ignore_eos: true },
  });
  let chunks = 0;
  for await (const _ of stream) {
    if (++chunks === 3) stream.controller.abort();
  }
  const { requests } = await at.untilFreed();
  assert.equal(requests?.running, 0);
});

test('the AI SDK streams and gives whole answers', async () => {
  const provider = createOpenAICompatible({ name: 'inferd', baseURL: `${at.http}/v1`, includeUsage: true });
  const asked = { model: provider(model), messages, seed: 7, maxOutputTokens: 24, maxRetries: 0 };
  const whole = await generateText(asked);
  const streamed = streamText(asked);
  let text = '';
  for await (const part of streamed.textStream) text += part;
  assert.equal(text, whole.text);
  assert.equal((await streamed.usage).outputTokens, whole.usage.outputTokens);
});

test("tokens come in vLLM's shape and go back to text", async () => {
  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${at.http}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    return (await response.json()) as Record<string, unknown>;
  };
  const { count, max_model_len, tokens } = await post('/tokenize', { model, prompt: 'The cat' });
  assert.ok(Array.isArray(tokens));
  assert.deepEqual([count, max_model_len], [tokens.length, 4096]);
  assert.deepEqual(await post('/detokenize', { model, tokens }), { prompt: '<|begin_of_text|>The cat' });
  const named = await post('/tokenize', { prompt: 'The cat 猫', return_token_strs: true });
  const texts = named['token_strs'] as string[];
  assert.deepEqual([texts.length, texts[0]], [named['count'], '<|begin_of_text|>']);
  assert.match(texts.join(''), /^<\|begin_of_text\|>The cat /);
  assert.deepEqual((await post('/tokenize', { prompt: 'The cat', return_token_strs: false }))['token_strs'], undefined);
});
