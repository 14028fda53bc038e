/** One answer, three ways: whole over HTTP, as server-sent events, whole over WebSocket. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { mixedRequest, pooled } from '../../helpers/wire/mixed-requests.js';
import { type Answer, addUpChoices } from '../../helpers/wire/rpc-socket.js';

let at: TestDaemon;
before(async () => {
  // Small budget and pool, so that chunks, mixed steps and prefix hits all happen.
  at = await startTestDaemon(['scheduler.max_num_batched_tokens=256', 'scheduler.max_num_sequences=48']);
});
after(() => at.close());

const NUM_REQUESTS = 200;
const paths: Readonly<Record<string, string>> = {
  'chat.completions.create': '/v1/chat/completions',
  'completions.create': '/v1/completions',
};

async function post(method: string, body: object): Promise<Response> {
  const response = await fetch(`${at.http}${paths[method]}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  assert.equal(response.status, 200);
  return response;
}

/** The chunks of a stream that ends well. */
function chunksOf(text: string): Answer[] {
  const events = text.split('\n\n');
  assert.deepEqual(events.splice(-2), ['data: [DONE]', '']);
  return events.map((event) => JSON.parse(event.replace(/^data: /, '')) as Answer);
}

/** What stays the same whatever the clock and the way say. */
function essence({ choices, usage, ...answer }: Answer) {
  return {
    choices,
    object: answer['object'],
    model: answer['model'],
    tokens: [usage?.prompt_tokens, usage?.completion_tokens, usage?.total_tokens],
  };
}

test(`${NUM_REQUESTS} requests with mixed parameters say the same over HTTP, in events and over WebSocket`, async () => {
  const socket = await at.open();
  await pooled(NUM_REQUESTS, async (index) => {
    const { method, params, numChoices } = mixedRequest(index);
    const streamed = { ...params, stream: true, stream_options: { include_usage: true } };
    const [whole, chunks, over] = await Promise.all([
      post(method, params).then((response) => response.json() as Promise<Answer>),
      post(method, streamed).then(async (response) => chunksOf(await response.text())),
      socket.call(method, params),
    ]);
    assert.deepEqual(essence(whole), essence(over), `request ${index}`);
    const last = chunks.pop();
    assert.deepEqual([last?.choices, last?.usage?.completion_tokens], [[], whole.usage?.completion_tokens], `usage of request ${index}`);
    const sum = addUpChoices(
      chunks.flatMap(({ choices }) => choices ?? []),
      numChoices,
    );
    const wanted = whole.choices ?? [];
    assert.deepEqual(
      sum.texts,
      wanted.map((c) => c.message?.content ?? c.text ?? ''),
      `texts of request ${index}`,
    );
    assert.deepEqual(
      sum.tokenIds,
      wanted.map((c) => c.token_ids),
      `token ids of request ${index}`,
    );
    assert.deepEqual(
      sum.finishes,
      wanted.map((c) => c.finish_reason),
      `ends of request ${index}`,
    );
    assert.ok(chunks.every((chunk) => chunk['id'] === chunks[0]?.['id']));
  });
  await socket.close();
  await at.untilFreed();
});
