/** The library: an engine in this process with the embedded model, greedy, so that answers are exact. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ConfigError, ConnectionClosedError, createEngine, type Engine, RpcError, StartError } from '../../../daemon/library/index.js';
import { privateEnv } from '../../helpers/daemon/daemon.js';
import { eventually } from '../../helpers/eventually.js';

const small = { env: privateEnv(), inference: { threads: 1 } } as const;
const ask = (content: string) => ({ messages: [{ role: 'user' as const, content }] });
const greedy = { temperature: 0 } as const;
const long = ask('Tell me a story about a mouse named Alan.');

let engine: Engine;
before(async () => {
  engine = await createEngine(small);
});
after(() => engine.close());

const idle = () => eventually('no request is left', async () => (await engine.client.call('stats.get', {})).requests.running === 0);

test('a conversation gets the object that a chat completion is, a text the one of a text completion', async () => {
  const chat = await engine.generate(ask('What is 123 + 456?'), greedy);
  assert.equal(chat.object, 'chat.completion');
  assert.equal(chat.choices[0]?.message.content, '123 + 456 = 579');
  assert.equal(chat.choices[0]?.finish_reason, 'stop');
  assert.equal(chat.usage.total_tokens, chat.usage.prompt_tokens + chat.usage.completion_tokens);
  const text = await engine.generate('Once upon a time', { ...greedy, max_tokens: 5 });
  assert.equal(text.object, 'text_completion');
  assert.equal(text.usage.completion_tokens, 5);
  const { ids } = await engine.client.call('tokenize', { text: 'Once upon a time' });
  const same = await engine.generate(ids, { ...greedy, max_tokens: 5 });
  assert.equal(same.choices[0]?.text, text.choices[0]?.text);
  assert.equal(engine.model.id, 'demo');
});

test('many prompts are answered in their order, each with its own parameters, and told as they come', async () => {
  const sums = Array.from({ length: 150 }, (_, i) => ask(`What is ${i} + ${i}?`));
  const told = new Set<number>();
  const answers = await engine.generate(
    sums,
    sums.map((_, i) => ({ ...greedy, max_tokens: i === 3 ? 1 : 16 })),
    { onAnswer: (_, index) => told.add(index) },
  );
  assert.equal(answers.length, 150);
  assert.equal(told.size, 150);
  assert.equal(answers[7]?.choices[0]?.message.content, '7 + 7 = 14');
  assert.equal(answers[149]?.choices[0]?.message.content, '149 + 149 = 298');
  assert.equal(answers[3]?.usage.completion_tokens, 1);
  assert.deepEqual(await engine.generate([], greedy), []);
  const texts = await engine.generate(['One two', [5, 6, 7]], { ...greedy, max_tokens: 2, n: 2 });
  assert.deepEqual(
    texts.map((answer) => answer.choices.length),
    [2, 2],
  );
});

test('a prompt that cannot be answered is named, with the code of the protocol, and the others are cancelled', async () => {
  const prompts = [long, ask('x'), long];
  const params = prompts.map((_, i) => ({ ...greedy, max_tokens: i === 1 ? 100_000 : 200 }));
  await assert.rejects(engine.generate(prompts, params), (error: unknown) => {
    assert.ok(error instanceof RpcError);
    assert.equal(error.code, -32006);
    assert.match(error.message, /^prompts\[1\]: The prompt has \d+ tokens and 100000 more may be generated/);
    return true;
  });
  await idle();
  await assert.rejects(
    engine.generate(ask('x'), { temperature: 9 }),
    (error: unknown) => error instanceof RpcError && error.code === -32602,
  );
  await assert.rejects(engine.generate(undefined as unknown as string), /prompt: must be a string/);
  await assert.rejects(engine.generate(['a', 'b'], [greedy]), /There are 2 prompts and 1 parameters/);
});

test('a stream gives chunks that add up to the answer, and leaving it early cancels the request', async () => {
  let text = '';
  for await (const chunk of engine.stream(ask('What is 123 + 456?'), greedy)) text += chunk.choices[0]?.delta.content ?? '';
  assert.equal(text, '123 + 456 = 579');
  for await (const chunk of engine.stream('Once upon a time', { ...greedy, ignore_eos: true, max_tokens: 2000 })) {
    assert.equal(chunk.object, 'text_completion');
    break;
  }
  await idle();
  await assert.rejects(engine.stream(ask('x'), { temperature: 9 }).next(), RpcError);
});

test('a signal cancels an answer, a stream and a list of prompts, with its reason', async () => {
  const reason = new Error('enough');
  const aborted = (): AbortSignal => {
    const controller = new AbortController();
    setImmediate(() => controller.abort(reason));
    return controller.signal;
  };
  const endless = { ...greedy, ignore_eos: true, max_tokens: 3000 };
  const same = (error: unknown): boolean => error === reason;
  await assert.rejects(engine.generate(long, endless, { signal: aborted() }), same);
  await assert.rejects(engine.generate(Array(100).fill(long) as (typeof long)[], endless, { signal: aborted() }), same);
  await assert.rejects(async () => {
    for await (const _ of engine.stream(long, endless, { signal: aborted() }));
  }, same);
  await idle();
  await assert.rejects(createEngine({ ...small, signal: AbortSignal.abort(reason) }), same);
});

test('log-probabilities of a long prompt come through whole', async () => {
  const ids = Array.from({ length: 3000 }, (_, i) => 100 + (i % 50));
  const answer = await engine.generate(ids, { max_tokens: 1, prompt_logprobs: 5 });
  const [choice] = answer.choices;
  assert.equal(choice?.prompt_logprobs?.length, 3000);
  assert.equal(choice?.prompt_logprobs?.[0], null);
  assert.ok(Object.keys(choice?.prompt_logprobs?.[2999] ?? {}).length >= 5);
});

test('two engines in one process answer side by side, and closing one leaves the other', async () => {
  const other = await createEngine({ ...small, inference: { threads: 1, served_model_name: 'other' } });
  const answers = await Promise.all([engine.generate(ask('What is 2 + 3?'), greedy), other.generate(ask('What is 2 + 3?'), greedy)]);
  assert.deepEqual(
    answers.map(({ model, choices }) => [model, choices[0]?.message.content]),
    [
      ['demo', '2 + 3 = 5'],
      ['other', '2 + 3 = 5'],
    ],
  );
  await other.close();
  await other.close();
  assert.equal((await engine.generate(ask('What is 2 + 3?'), greedy)).choices[0]?.message.content, '2 + 3 = 5');
});

test('what is unanswered when an engine is closed rejects, and so does what comes later', async () => {
  let inside: Engine;
  let running: Promise<unknown>;
  {
    await using engine = await createEngine(small);
    inside = engine;
    running = assert.rejects(engine.generate(long, { ...greedy, ignore_eos: true, max_tokens: 3000 }), ConnectionClosedError);
  }
  await running;
  await assert.rejects(
    inside.generate('x'),
    (error: unknown) => error instanceof ConnectionClosedError && /engine was closed/.test(error.message),
  );
});

test('options are checked as those of a file are, with the nearest name, and a model that is not there is named', async () => {
  const refused = (options: object, says: RegExp) =>
    assert.rejects(createEngine({ ...small, ...options }), (error: unknown) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, says);
      return true;
    });
  await refused({ schedular: { max_queue: 1 } }, /^option schedular: unknown section \[schedular\]; nearest known section: \[scheduler\]$/);
  await refused({ scheduler: { max_que: 1 } }, /unknown key scheduler\.max_que = 1; nearest known key: scheduler\.max_queue/);
  await refused(
    { scheduler: { max_queue: -1 } },
    /option scheduler\.max_queue: scheduler\.max_queue = -1 is not allowed; expected a whole number/,
  );
  await refused({ config: '/nowhere/x.toml' }, /\/nowhere\/x\.toml does not exist/);
  await refused({ model_name: '/nowhere/model' }, /\/nowhere\/model/);
  await assert.rejects(createEngine({ ...small, cache: { num_gpu_blocks_override: 3 } }), (error: unknown) => {
    assert.ok(error instanceof StartError);
    assert.match(error.message, /^The KV cache would have 3 blocks/);
    return true;
  });
});
