/** GET /metrics of a real daemon: figures equal to the requests made, also while it works. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { eventually } from '../helpers/eventually.js';
import { type Exposition, scrape } from '../helpers/wire/exposition.js';
import type { Answer } from '../helpers/wire/rpc-socket.js';

let at: TestDaemon;
before(async () => {
  at = await startTestDaemon(['scheduler.max_num_sequences=4', 'scheduler.max_num_batched_tokens=64', 'scheduler.max_queue=2']);
});
after(() => at.close());

const chat = (text: string, more: object = {}) => ({ messages: [{ role: 'user', content: text }], ignore_eos: true, seed: 1, ...more });
const endless = chat('Count.', { max_tokens: 3000, stream: true });

function ask(path: string, body: object, signal?: AbortSignal): Promise<Response> {
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  return fetch(at.http + path, signal === undefined ? init : { ...init, signal });
}

async function whole(path: string, body: object): Promise<Answer> {
  const response = await ask(path, body);
  assert.equal(response.status, 200);
  return (await response.json()) as Answer;
}

/** The usage that a stream of events ends with. */
async function streamed(path: string, body: object): Promise<Answer> {
  const response = await ask(path, { ...body, stream: true, stream_options: { include_usage: true } });
  const events = (await response.text()).split('\n\n').filter((event) => event.startsWith('data: {'));
  return JSON.parse((events.at(-1) ?? '').replace('data: ', '')) as Answer;
}

/** How much each figure grew while `work` ran, and until no request was left. */
async function growth(work: () => Promise<void>): Promise<(name: string, labels?: Record<string, string>) => number> {
  const earlier = await scrape(at.http);
  await work();
  await at.untilFreed();
  const later = await scrape(at.http);
  return (name, labels) => later.value(name, labels) - valueOr0(earlier, name, labels);
}

/** Samples of routes, codes and reasons come with the first of their kind. */
function valueOr0(exposition: Exposition, name: string, labels?: Record<string, string>): number {
  try {
    return exposition.value(name, labels);
  } catch {
    return 0;
  }
}

test('counters equal the requests made', async () => {
  const socket = await at.open();
  const answers: Answer[] = [];
  const grown = await growth(async () => {
    answers.push(
      await whole('/v1/chat/completions', chat('One', { max_tokens: 5 })),
      await streamed('/v1/chat/completions', chat('Two', { max_tokens: 6 })),
      await whole('/v1/completions', { prompt: ['a b', 'c d e'], max_tokens: 3, ignore_eos: true }),
      await socket.call('chat.completions.create', chat('Three', { max_tokens: 7, n: 2, temperature: 1 })),
      await socket.call('completions.create', { prompt: 'x', max_tokens: 4, best_of: 3, temperature: 1, ignore_eos: true }),
      await socket.call('completions.create', { prompt: 'fox', max_tokens: 100, stop: ['e', 'a', 'o', ' '] }),
    );
    assert.equal((await ask('/v1/completions', { prompt: 'x', max_tokens: -1 })).status, 400);
    assert.equal((await ask('/v1/completions', { prompt: 'word '.repeat(5000), max_tokens: 1 })).status, 400);
  });
  const sum = (of: (usage: NonNullable<Answer['usage']>) => number): number =>
    answers.reduce((total, { usage }) => total + (usage === undefined ? Number.NaN : of(usage)), 0);
  const prompts = 7;
  const sequences = 10;
  assert.equal(
    grown('vllm:prompt_tokens_total'),
    sum((usage) => usage.prompt_tokens),
  );
  assert.equal(
    grown('vllm:generation_tokens_total'),
    sum((usage) => usage.completion_tokens),
  );
  assert.equal(grown('vllm:request_success_total', { finished_reason: 'length' }), sequences - 1);
  assert.equal(grown('vllm:request_success_total', { finished_reason: 'stop' }), 1);
  assert.equal(grown('vllm:request_success_total', { finished_reason: 'abort' }), 0);
  for (const name of [
    'vllm:time_to_first_token_seconds',
    'vllm:e2e_request_latency_seconds',
    'vllm:request_queue_time_seconds',
    'vllm:request_prefill_time_seconds',
    'vllm:request_inference_time_seconds',
    'vllm:request_prompt_tokens',
    'vllm:request_params_n',
    'vllm:request_params_max_tokens',
  ]) {
    assert.equal(grown(`${name}_count`), prompts, name);
  }
  for (const name of ['vllm:request_generation_tokens', 'vllm:request_decode_time_seconds']) {
    assert.equal(grown(`${name}_count`), sequences, name);
  }
  assert.equal(grown('vllm:request_prompt_tokens_sum'), grown('vllm:prompt_tokens_total'));
  assert.equal(grown('vllm:request_generation_tokens_sum'), grown('vllm:generation_tokens_total'));
  assert.equal(grown('vllm:request_params_n_sum'), 1 + 1 + 1 + 1 + 2 + 1 + 1);
  assert.ok(grown('vllm:iteration_tokens_total_count') > 0);
  assert.equal(grown('vllm:iteration_tokens_total_count'), grown('inferd_step_seconds_count'));
  assert.equal(grown('inferd_errors_total', { code: '-32602' }), 1);
  assert.equal(grown('inferd_errors_total', { code: '-32006' }), 1);
  assert.equal(grown('vllm:http_requests_total', { handler: '/v1/chat/completions', method: 'POST', status: '2xx' }), 2);
  assert.equal(grown('vllm:http_requests_total', { handler: '/v1/completions', method: 'POST', status: '4xx' }), 2);
  await socket.close();
});

test('a prompt from the prefix cache counts as prompt and as hit', async () => {
  const prompt = 'The quick brown fox jumps over the lazy dog, again and again. '.repeat(4);
  const again = () => whole('/v1/completions', { prompt, max_tokens: 2, ignore_eos: true });
  const { usage } = await again();
  await at.untilFreed();
  const grown = await growth(async () => void (await again()));
  const cached = grown('vllm:prefix_cache_hits_total');
  assert.ok(cached >= 16, `${cached}`);
  assert.equal(grown('vllm:prompt_tokens_total'), usage?.prompt_tokens);
  assert.equal(grown('vllm:prefix_cache_queries_total'), usage?.prompt_tokens);
  assert.equal(grown('vllm:gpu_prefix_cache_hits_total'), cached);
  assert.equal(grown('vllm:prompt_tokens_by_source_total', { source: 'local_cache_hit' }), cached);
  assert.equal(grown('vllm:request_prefill_kv_computed_tokens_sum'), grown('vllm:prompt_tokens_total') - cached);
});

test('while it works, running and waiting requests show; cancelled ones count as aborts, queued ones too', async () => {
  const socket = await at.open();
  const grown = await growth(async () => {
    const running = Array.from({ length: 4 }, () => socket.send('chat.completions.create', endless));
    for (const id of running) await socket.event(id, 'delta');
    const queued = [socket.send('chat.completions.create', endless), socket.send('chat.completions.create', endless)];
    for (const id of queued) await socket.event(id, 'queued');
    const refused = await socket.reply(socket.send('chat.completions.create', endless));
    assert.equal(refused.error?.code, -32005);

    const now = await scrape(at.http);
    assert.equal(now.value('vllm:num_requests_running'), 4);
    assert.equal(now.value('vllm:num_requests_waiting'), 2);
    assert.equal(now.value('inferd_connections', { kind: 'websocket' }), 2);
    const used = now.value('vllm:kv_cache_usage_perc');
    assert.ok(used > 0 && used < 1, `${used}`);
    assert.equal(now.value('vllm:gpu_cache_usage_perc'), used);

    for (const id of [...queued, ...running]) {
      socket.notify('$/cancelRequest', { id });
      assert.equal((await socket.reply(id)).error?.code, -32800);
    }
  });
  assert.equal(grown('vllm:request_success_total', { finished_reason: 'abort' }), 6);
  assert.equal(grown('vllm:admission_rejections_total', { reason: 'queue_full' }), 1);
  assert.equal(grown('vllm:e2e_request_latency_seconds_count'), 6);
  assert.equal(grown('vllm:request_prompt_tokens_count'), 4);
  assert.equal(grown('inferd_errors_total', { code: '-32800' }), 6);
  assert.equal((await scrape(at.http)).value('vllm:num_requests_running'), 0);
  await socket.close();
});

test('a client that leaves its stream is an abort', async () => {
  const grown = await growth(async () => {
    const gone = new AbortController();
    const response = await ask('/v1/chat/completions', endless, gone.signal);
    await response.body?.getReader().read();
    gone.abort();
    await eventually('the abort counts', async () => (await at.stats()).requests?.running === 0);
  });
  assert.equal(grown('vllm:request_success_total', { finished_reason: 'abort' }), 1);
});

test('the cache and the model are described in labels', async () => {
  const { labels } = (await scrape(at.http)).family('vllm:cache_config_info').lines[0] ?? assert.fail();
  const model = at.daemon.engine.client.model();
  assert.equal(labels['num_gpu_blocks'], String(model?.totalBlocks));
  assert.equal(labels['block_size'], String(model?.blockSize));
  assert.equal(labels['model_name'], 'demo');
});
