/** Answers too large to be written at once, from the refusal at the door to the last slice. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { RpcConnection } from '../../rpc/connection.js';
import { allScopes } from '../../rpc/scope.js';
import type { Slices } from '../../rpc/slices.js';
import type { Wire } from '../../rpc/wire.js';
import { at, call, chat, connectPeer, type Setup, settle, setup } from './harness.js';

/** A socket that takes slices when the test says so. */
class SlowWire implements Wire {
  readonly frames: string[] = [];
  reading = true;
  #slices: Slices | null = null;
  #done: () => void = () => {};

  send(data: string | Uint8Array): void {
    assert.equal(this.#slices, null, 'nothing comes between the slices of a message');
    this.frames.push(data as string);
  }
  sendSlices(slices: Slices, done: () => void): void {
    assert.equal(this.#slices, null, 'one message at a time');
    this.#slices = slices;
    this.#done = done;
    this.frames.push('');
  }
  bufferedBytes(): number {
    return 0;
  }
  setReading(on: boolean): void {
    this.reading = on;
  }

  get busy(): boolean {
    return this.#slices !== null;
  }
  /** Takes one slice; false when that was the end. */
  takeOne(): boolean {
    const slice = this.#slices?.next() ?? null;
    if (slice === null) this.stop();
    else this.frames.push(`${this.frames.pop() ?? ''}${slice}`);
    return slice !== null;
  }
  takeAll(): void {
    while (this.takeOne());
  }
  /** The message ends here, whole or not. */
  stop(): void {
    this.#slices?.close();
    this.#slices = null;
    this.#done();
  }
  ids(): unknown[] {
    return this.frames.map((frame) => at(JSON.parse(frame), 'id') ?? at(JSON.parse(frame), 'method'));
  }
}

function connectSlow({ server }: Setup) {
  const wire = new SlowWire();
  const connection = new RpcConnection(server, wire, { encoding: 'json', scopes: allScopes });
  return { wire, connection, say: (message: unknown) => connection.receive(JSON.stringify(message)) };
}

/** Its echoed prompt has 3,000 tokens, with two log-probabilities each: 200 kB. */
const large = { prompt: 'a'.repeat(3000), echo: true, logprobs: 1, max_tokens: 1 };
const largeEntries = 3001 * 2;

describe('while a large answer is written', () => {
  test('other messages of its connection wait in order, and other connections do not', async () => {
    const set = setup();
    const slow = connectSlow(set);
    const other = connectPeer(set.server);
    slow.say(call(1, 'completions.create', large));
    await settle();
    assert.ok(slow.wire.busy);
    slow.wire.takeOne();
    slow.say(call(2, 'ping'));
    slow.say(call(3, 'completions.create', large));
    await settle();
    slow.say(call(4, 'ping'));
    slow.connection.shutdown();
    other.say(call(9, 'ping'));
    assert.deepEqual(at((await other.hear())[0], 'id'), 9);
    assert.equal(slow.wire.frames.length, 1);
    slow.wire.takeAll();
    await settle();
    assert.deepEqual(slow.wire.frames.length, 3);
    assert.ok(slow.wire.busy, 'the second large one');
    slow.wire.takeAll();
    await settle();
    assert.deepEqual(slow.wire.ids(), [1, 2, 3, '$/shutdown', 4]);
    assert.equal(slow.connection.pending, 0);
  });

  test('events of streams wait merged, and go on behind it', async () => {
    const set = setup();
    set.engine.script = (prompt) => (prompt.kind === 'chat' ? Array.from({ length: 20 }, (_, i) => `${i} `) : ['x']);
    const slow = connectSlow(set);
    slow.say(call(1, 'completions.create', large));
    await settle();
    slow.say(call(2, 'chat.completions.create', chat('x', { stream: true })));
    await settle();
    assert.equal(slow.wire.frames.length, 1);
    slow.wire.takeAll();
    await settle();
    const [, event, response] = slow.wire.frames.map((frame) => JSON.parse(frame) as unknown);
    assert.equal(at(event, 'params', 'choices', 0, 'delta', 'content'), Array.from({ length: 20 }, (_, i) => `${i} `).join(''));
    assert.equal(at(response, 'id'), 2);
  });

  test('a stream is not held to be stuck while its client takes slices', async () => {
    const set = setup({ config: { server: { slow_client_timeout_s: 0.2 } } });
    const slow = connectSlow(set);
    slow.say(call(1, 'completions.create', { ...large, prompt: 'a'.repeat(40_000), n: 1 }));
    await settle();
    slow.say(call(2, 'chat.completions.create', chat('x', { stream: true })));
    for (let i = 0; i < 10; i++) {
      assert.ok(slow.wire.takeOne());
      await new Promise((resolve) => setTimeout(resolve, 60));
    }
    slow.wire.takeAll();
    await settle();
    const response = slow.wire.frames.map((frame) => JSON.parse(frame) as unknown).find((frame) => at(frame, 'id') === 2);
    assert.equal(at(response, 'error'), undefined);
  });

  test('a client that goes on calling without taking the answer is not read any more, until it has', async () => {
    const set = setup();
    const slow = connectSlow(set);
    slow.say(call('large', 'completions.create', large));
    await settle();
    for (let id = 0; id < 40; id++) slow.say(call(id, 'ping'));
    await settle();
    assert.equal(slow.wire.reading, false);
    slow.wire.takeAll();
    await settle();
    assert.equal(slow.wire.reading, true);
    assert.equal(slow.wire.frames.length, 41);
  });

  test('a connection that closes frees it and what waits', async () => {
    const set = setup();
    const slow = connectSlow(set);
    for (const id of [1, 2]) slow.say(call(id, 'completions.create', large));
    await settle();
    assert.ok(set.server.holdings.held > 0);
    slow.wire.takeOne();
    slow.connection.close();
    slow.wire.stop();
    assert.equal(set.server.holdings.held, 0);
  });

  test('a batch is one message too, and is let go of at its end', async () => {
    const set = setup();
    const slow = connectSlow(set);
    slow.say([call(1, 'completions.create', large), call(2, 'ping'), call(3, 'completions.create', large)]);
    await settle();
    assert.ok(set.server.holdings.held > 0);
    slow.wire.takeAll();
    const [batch] = slow.wire.frames.map((frame) => JSON.parse(frame) as unknown[]);
    assert.deepEqual(
      batch?.map((reply) => at(reply, 'id')),
      [1, 2, 3],
    );
    assert.equal((at(batch?.[2], 'result', 'choices', 0, 'logprobs', 'tokens') as unknown[]).length, 3001);
    assert.equal(set.server.holdings.held, 0);
  });
});

test('a large answer over HTTP comes in slices', async () => {
  const { server } = setup();
  const reply = await server.handlePost(Buffer.from(JSON.stringify(call(1, 'completions.create', large))));
  assert.deepEqual([reply.status, reply.body], [200, null]);
  assert.ok(reply.slices);
  let text = '';
  for (let slice = reply.slices.next(); slice !== null; slice = reply.slices.next()) text += slice as string;
  assert.equal(at(JSON.parse(text), 'result', 'choices', 0, 'text'), `${large.prompt}You`);
  assert.ok(server.holdings.held > 0);
  reply.slices.close();
  assert.equal(server.holdings.held, 0);
});

test('an echoed prompt is streamed in events of a bounded size', async () => {
  const peer = connectPeer(setup().server);
  peer.say(call(1, 'completions.create', { ...large, n: 2, stream: true, temperature: 1 }));
  await settle(200);
  const frames = await peer.hear();
  const events = frames.filter((frame) => at(frame, 'method') === '$/progress').map((frame) => at(frame, 'params', 'choices') as unknown[]);
  const largest = Math.max(
    ...events.map((choices) => choices.reduce((sum: number, c) => sum + (at(c, 'logprobs', 'tokens') as []).length, 0)),
  );
  assert.ok(largest <= 128, `${largest} tokens in an event`);
  for (const index of [0, 1]) {
    const own = events.flat().filter((choice) => at(choice, 'index') === index);
    const logprobs = at(frames.at(-1), 'result', 'choices', index, 'logprobs');
    for (const column of ['text_offset', 'tokens', 'token_logprobs', 'top_logprobs']) {
      assert.deepEqual(
        own.flatMap((choice) => at(choice, 'logprobs', column)),
        at(logprobs, column),
      );
    }
    assert.ok(
      own
        .map((choice) => at(choice, 'text'))
        .join('')
        .startsWith(large.prompt),
    );
  }
});

describe('the log-probabilities of an answer', () => {
  const limited = (max: number, auto = true) => setup({ auto, config: { validation: { max_reported_logprobs: max } } });
  const ask = async (set: Setup, method: string, params: object) => {
    const peer = connectPeer(set.server);
    peer.say(call(1, method, params));
    return (await peer.hear()).at(-1);
  };
  const ids = (count: number, length: number) => Array.from({ length: count }, () => new Array<number>(length).fill(65));

  test('are counted at the door where prompts are token ids, and the refusal says the product', async () => {
    const set = limited(10_000);
    const params = { prompt: ids(10, 50), n: 2, temperature: 1, echo: true, logprobs: 4, prompt_logprobs: 3, max_tokens: 6 };
    const answer = await ask(set, 'completions.create', params);
    assert.equal(at(answer, 'error', 'code'), -32602);
    assert.match(
      String(at(answer, 'error', 'message')),
      /10600 log-probabilities \(500 prompt tokens x 20 \+ 120 tokens to generate x 5\); validation\.max_reported_logprobs allows 10000/,
    );
    assert.equal(set.engine.all.length, 0, 'the engine heard nothing of it');
    assert.equal(set.server.holdings.held, 0);
    assert.equal(at(await ask(set, 'completions.create', { ...params, max_tokens: 1, prompt: ids(9, 50) }), 'error'), undefined);
    assert.equal(
      at(await ask(set, 'completions.create', { ...params, logprobs: null, prompt_logprobs: null, echo: false }), 'error'),
      undefined,
    );
  });

  test('count a truncated prompt as it will be', async () => {
    const params = { prompt: ids(1, 500), prompt_logprobs: 9, truncate_prompt_tokens: 10, max_tokens: 1 };
    assert.equal(at(await ask(limited(100), 'completions.create', params), 'error'), undefined);
    assert.equal(at(await ask(limited(99), 'completions.create', params), 'error', 'code'), -32602);
  });

  test('of text prompts are counted as they are encoded, and the refusal ends what runs', async () => {
    const set = limited(100, false);
    const peer = connectPeer(set.server);
    peer.say(call(1, 'completions.create', { prompt: ['a'.repeat(60), 'b'.repeat(60), 'c'], prompt_logprobs: 0, max_tokens: 1 }));
    const [answer] = await peer.hear();
    assert.equal(at(answer, 'error', 'code'), -32602);
    assert.equal(set.engine.live.length, 0);
    assert.ok(set.engine.cancelled.length > 0);
    assert.equal(set.server.holdings.held, 0);
  });

  test('of chats count the prompt once, whatever n', async () => {
    const params = chat('a'.repeat(50), { n: 2, temperature: 1, prompt_logprobs: 1, logprobs: true, top_logprobs: 1, max_tokens: 5 });
    assert.equal(at(await ask(limited(50 * 2 + 10 * 2), 'chat.completions.create', params), 'error'), undefined);
    assert.equal(at(await ask(limited(50 * 2 + 10 * 2 - 1), 'chat.completions.create', params), 'error', 'code'), -32602);
  });

  test('without max_tokens are counted as they come, and too many end the call', async () => {
    const set = limited(40);
    set.engine.script = () => new Array<string>(100).fill('x');
    const answer = await ask(set, 'chat.completions.create', chat('x', { logprobs: true, top_logprobs: 1 }));
    assert.deepEqual([at(answer, 'error', 'code'), set.engine.live.length], [-32007, 0]);
    assert.match(String(at(answer, 'error', 'message')), /more than 40 log-probabilities .*set max_tokens/);
  });

  test('of all answers that are not written yet are bounded together, and there is room again when one has left', async () => {
    const set = limited(largeEntries);
    const clients = Array.from({ length: 8 }, () => connectSlow(set));
    for (const [id, client] of clients.entries()) client.say(call(id, 'completions.create', large));
    await settle(80);
    const refused = clients.filter((client) => !client.wire.busy);
    assert.ok(refused.length > 0 && refused.length < 8, `${refused.length} are refused`);
    for (const { wire } of refused) assert.equal(at(JSON.parse(wire.frames[0] ?? ''), 'error', 'code'), -32005);
    for (const { wire } of clients) wire.takeAll();
    assert.equal(set.server.holdings.held, 0);
    refused[0]?.say(call('again', 'completions.create', large));
    await settle(80);
    assert.ok(refused[0]?.wire.busy);
  });
});

test('what comes for a call that was cancelled is held by nobody', async () => {
  const set = setup();
  const peer = connectPeer(set.server);
  let open = (): void => {};
  set.engine.gate = new Promise((resolve) => {
    open = resolve;
  });
  peer.say(call(1, 'tokenize', { text: 'a'.repeat(30_000) }));
  peer.say({ jsonrpc: '2.0', method: '$/cancelRequest', params: { id: 1 } });
  assert.equal(at((await peer.hear())[0], 'error', 'code'), -32800);
  open();
  await settle();
  assert.equal(set.server.holdings.held, 0);
});

test('token ids and texts of tokenize and detokenize are held until they are written', async () => {
  const set = setup({ config: { validation: { max_reported_logprobs: 10_000 } } });
  const slow = connectSlow(set);
  slow.say(call(1, 'tokenize', { text: 'a'.repeat(30_000) }));
  slow.say(call(2, 'detokenize', { ids: new Array(120_000).fill(65) }));
  await settle();
  assert.equal(set.server.holdings.held, 4 * 30_000 + 120_000);
  slow.say(call(3, 'tokenize', { text: 'a'.repeat(30_000) }));
  await settle();
  slow.wire.takeAll();
  slow.wire.takeAll();
  await settle();
  const replies = slow.wire.frames.map((frame) => JSON.parse(frame) as unknown);
  assert.deepEqual(
    replies.map((reply) => [at(reply, 'id'), at(reply, 'result', 'count') ?? String(at(reply, 'result', 'text')).length]),
    [
      [1, 30_000],
      [2, 120_000],
      [3, 9],
    ],
  );
  assert.equal(at(replies[2], 'error', 'code'), -32005);
  assert.equal(set.server.holdings.held, 0);
});
