/** Templates that take long, in the tokenizer actor and on their own. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { InferdError } from '../../../../actors/messages/errors.js';
import { Cancellation } from '../../../../actors/runtime/cancellation.js';
import { SlowRender } from '../../../../actors/tokenizer/template/slow-render.js';
import { demoModel, demoPath, Harness, id, writeModel } from '../harness.js';

/** Spins for as many rounds as a message says, a few microseconds each, then writes what follows '!' in it and a control token. */
const template = [
  "{%- set parts = messages[0].content.split('<!') -%}{%- for i in range(parts[0] | int) -%}{%- for j in range(1000) -%}{%- set x = i * j -%}",
  "{%- endfor -%}{%- endfor -%}{{ parts[1] }}{% if '<|eot_id|>' in parts[1] %}!{% endif %}<|eot_id|>",
].join('');
const END = 100_000;

const started: Harness[] = [];
after(() => {
  for (const harness of started) harness.handlers.close();
});

async function start(limits: { maxTemplateMs?: number } = {}): Promise<Harness> {
  const path = writeModel({
    'tokenizer.json': readFileSync(join(demoPath, 'tokenizer.json'), 'utf8'),
    'tokenizer_config.json': { chat_template: template, bos_token: '<|begin_of_text|>' },
  });
  const harness = await Harness.start({ ...demoModel, path }, limits);
  started.push(harness);
  return harness;
}

const chat = (rounds: number, text: string) => [{ role: 'user', content: `${rounds}<!${text}` }];

test('a template that takes long renders what it renders at once, and guards control tokens all the same', async () => {
  const harness = await start({ maxTemplateMs: 20_000 });
  const text = 'some <|eot_id|> text';
  const quick = await harness.chat(chat(0, text));
  assert.equal(await harness.decode(quick), `${text}!<|eot_id|>`);
  assert.equal(quick.filter((token) => token === 4092).length, 1);
  for (const rounds of [40, 80]) assert.deepEqual(await harness.chat(chat(rounds, text)), quick);
});

const bomb = (harness: Harness) => harness.encodeFailure({ kind: 'chat', messages: chat(END, ''), addGenerationPrompt: false });

test('while a template does not end, others are encoded and decoded', async () => {
  const harness = await start({ maxTemplateMs: 60_000 });
  await harness.chat(chat(0, '')); // the first time takes some milliseconds, which is slow while another one is
  const failed = bomb(harness);
  const served = (async () => {
    for (let i = 0; i < 5; i++) {
      assert.equal(await harness.decode(await harness.chat(chat(0, `text ${i}`))), `text ${i}<|eot_id|>`);
    }
    return 'served';
  })();
  assert.equal(await Promise.race([served, failed]), 'served');
  harness.handlers.close();
  assert.equal((await failed)?.kind, 'invalid_params');
});

test('of templates that do not end each is stopped', async () => {
  const harness = await start({ maxTemplateMs: 100 });
  for (const failure of await Promise.all([bomb(harness), bomb(harness)])) {
    assert.deepEqual(failure, { kind: 'invalid_params', message: 'The chat template was stopped after 100 ms' });
  }
});

test('a request that is aborted while it waits for slow templates costs nothing more, and says nothing', async () => {
  const harness = await start();
  const first = bomb(harness);
  const prompt = { kind: 'chat', messages: chat(END, ''), addGenerationPrompt: false } as const;
  for (let n = 1; n <= 20; n++) harness.submit(n, prompt);
  assert.equal(harness.handlers.size(), 20);
  harness.handlers.fromFront({ k: 'abort', ids: Array.from({ length: 20 }, (_, n) => id(n + 1)) });
  await first;
  assert.deepEqual(await harness.decode(await harness.chat(chat(0, 'after'))), 'after<|eot_id|>');
  assert.deepEqual(
    harness.front.filter((message) => message.k !== 'reply'),
    [],
  );
});

test('a thread that dies fails the template at hand, and the next one has a new thread', async () => {
  const limits = { maxTemplateMs: 20_000, maxTemplateBytes: 10_000, maxTemplateOutputBytes: 10_000 };
  const slow = new SlowRender(limits);
  const job = (source: string) => ({ source, literals: [], searched: [], variables: { word: 'text' } });
  const asker = { client: 0, cancellation: new Cancellation() };
  const leaver = { client: 0, cancellation: new Cancellation() };
  const dying = slow.render(job('{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}'), asker);
  const next = slow.render(job('{{ word }}'), asker);
  const unwanted = slow.render(job('{{ word }}'), leaver);
  assert.equal(slow.busy, true);
  await Promise.resolve(); // the first has its turn
  leaver.cancellation.cancel();
  await assert.rejects(unwanted, (error: unknown) => error instanceof InferdError && error.failure.kind === 'cancelled');
  slow.close();
  await assert.rejects(dying, { message: 'The chat template cannot be applied to these messages' });
  assert.equal(await next, 'text');
  assert.equal(slow.busy, false);
  await assert.rejects(slow.render(job('{{ raise_exception(word) }}'), asker), { message: 'Chat template: text' });
  slow.close();
});
