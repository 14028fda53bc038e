/** Embeddings of a daemon with the demo model: OpenAI's own client and Vercel's, unmodified, and both doors against each other. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { embed, embedMany } from 'ai';
import OpenAI from 'openai';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { eventually } from '../../helpers/eventually.js';
import { scrape } from '../../helpers/wire/exposition.js';

let at: TestDaemon;
let client: OpenAI;
before(async () => {
  // A small budget, so that inputs are computed in chunks and beside others.
  at = await startTestDaemon(['scheduler.max_num_batched_tokens=64', 'scheduler.max_num_sequences=8']);
  client = new OpenAI({ baseURL: `${at.http}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => at.close());

const model = 'demo';
const story = 'Once upon a time there was a fox who lived in a forest. ';
const texts = ['What is 12 + 30?', 'The cat', story.repeat(12), 'a', story];

/** Requests hold so many KV blocks. */
async function untilUsed(blocks: number): Promise<void> {
  const enough = async (): Promise<boolean> => ((await at.stats()).kv?.used_blocks ?? 0) >= blocks;
  await eventually(`${blocks} blocks are used`, enough);
}

async function post(body: object): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(`${at.http}/v1/embeddings`, { method: 'POST', headers, body: JSON.stringify(body) });
}

test("OpenAI's client gives an embedding of length 1 for each input, in order", async () => {
  const { data, usage } = await client.embeddings.create({ model, input: texts });
  assert.deepEqual(
    data.map(({ index, object }) => [index, object]),
    texts.map((_, i) => [i, 'embedding']),
  );
  for (const { embedding } of data) assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-6);
  assert.ok(usage.prompt_tokens > 64 && usage.total_tokens === usage.prompt_tokens);
  for (const [i, input] of texts.entries()) {
    const alone = await client.embeddings.create({ model, input });
    assert.deepEqual(alone.data[0]?.embedding, data[i]?.embedding, 'the same bits alone and among others');
  }
});

test('what it decodes from base64 by default is what float says', async () => {
  const packed = await client.embeddings.create({ model, input: story });
  const plain = await client.embeddings.create({ model, input: story, encoding_format: 'float' });
  assert.deepEqual(Float32Array.from(plain.data[0]?.embedding ?? []), Float32Array.from(packed.data[0]?.embedding ?? []));
});

test('dimensions cut the embedding', async () => {
  const whole = (await client.embeddings.create({ model, input: story })).data[0]?.embedding ?? [];
  const cut = (await client.embeddings.create({ model, input: story, dimensions: 5 })).data[0]?.embedding ?? [];
  assert.equal(cut.length, 5);
  const length = Math.hypot(...whole.slice(0, 5));
  for (const [i, x] of cut.entries()) assert.ok(Math.abs(x - (whole[i] ?? 0) / length) < 1e-6);
});

test('token ids give what their text gives', async () => {
  const socket = await at.open();
  const { ids } = await socket.call('tokenize', { text: story });
  const of = async (input: string | number[]) => (await client.embeddings.create({ model, input })).data[0]?.embedding;
  assert.deepEqual(await of(ids as number[]), await of(story));
  await socket.close();
});

test("Vercel's client embeds one and many", async () => {
  const provider = createOpenAICompatible({ name: 'inferd', baseURL: `${at.http}/v1` });
  const embedder = provider.textEmbeddingModel(model);
  const { embedding, usage } = await embed({ model: embedder, value: story, maxRetries: 0 });
  assert.ok(Math.abs(Math.hypot(...embedding) - 1) < 1e-6 && usage.tokens > 0);
  const { embeddings } = await embedMany({ model: embedder, values: ['The cat', story], maxRetries: 0 });
  assert.equal(embeddings.length, 2);
  assert.deepEqual(embeddings[1], embedding);
});

test('HTTP and JSON-RPC give the same object', async () => {
  const socket = await at.open();
  for (const body of [{ input: texts }, { input: [[5, 6, 7], [8]], encoding_format: 'base64', dimensions: 3 }]) {
    const over = await (await post(body)).json();
    const same = await socket.call('embeddings.create', body);
    // The second call finds what the first one left in the prefix cache.
    const essence = ({ usage, ...answer }: Record<string, unknown>) => [answer, (usage as { prompt_tokens: number }).prompt_tokens];
    assert.deepEqual(essence(over as Record<string, unknown>), essence(same));
  }
  await socket.close();
});

test('errors come as the classes of the client, with all four fields', async () => {
  const bad = async (body: object, param: string | null, code: string): Promise<void> => {
    await assert.rejects(client.embeddings.create({ model, input: 'x', ...body }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.deepEqual([error.type, error.param, error.code], ['invalid_request_error', param, code]);
      return true;
    });
  };
  await bad({ input: '' }, 'input', 'invalid_params');
  await bad({ input: [] }, 'input', 'invalid_params');
  await bad({ input: [4096] }, 'input', 'invalid_params');
  await bad({ dimensions: 100_000 }, 'dimensions', 'invalid_params');
  await bad({ encoding_format: 'binary' }, 'encoding_format', 'invalid_params');
  await bad({ input: new Array<number>(4097).fill(7) }, null, 'context_length_exceeded');
  await assert.rejects(client.embeddings.create({ model: 'other', input: 'x' }), OpenAI.NotFoundError);
  const body = (await (await post({ input: ['a', new Array(5000).fill('word').join(' ')] })).json()) as { error: Record<string, unknown> };
  assert.deepEqual(Object.keys(body.error).sort(), ['code', 'message', 'param', 'type']);
  assert.match(String(body.error['message']), /^input\[1\]: The prompt has more than/);
});

test('cancelled in the middle of its prompts, a call frees all blocks and is answered once', async () => {
  const socket = await at.open();
  const input = Array.from({ length: 24 }, (_, i) => `${i} ${story.repeat(40)}`);
  const id = socket.send('embeddings.create', { input });
  await untilUsed(50);
  socket.notify('$/cancelRequest', { id });
  assert.equal((await socket.reply(id)).error?.code, -32800);
  await at.untilFreed();
  assert.equal(socket.log.filter((message) => message.id === id).length, 1);
  await socket.close();
});

test('a client that goes away has its requests ended', async () => {
  const controller = new AbortController();
  const input = Array.from({ length: 24 }, (_, i) => `${i} ${story.repeat(40)}`);
  const call = client.embeddings.create({ model, input }, { signal: controller.signal });
  await untilUsed(50);
  controller.abort();
  await assert.rejects(call);
  await at.untilFreed();
});

test('prompts count in the figures of /metrics, and no tokens are generated', async () => {
  const before = await scrape(at.http);
  const { usage } = await client.embeddings.create({ model, input: ['one', 'two', story] });
  const after = await scrape(at.http);
  const grown = (name: string, labels?: Record<string, string>): number => after.value(name, labels) - before.value(name, labels);
  assert.equal(grown('vllm:prompt_tokens_total'), usage.prompt_tokens);
  assert.equal(grown('vllm:generation_tokens_total'), 0);
  assert.equal(grown('vllm:request_success_total', { finished_reason: 'stop' }), 3);
});
