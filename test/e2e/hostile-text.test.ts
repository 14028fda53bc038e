/** Texts that the tokenizer library would hang in or die of, through a whole daemon: each is answered once, and others go on. */
import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../native/index.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { tempFolder } from '../helpers/temp-folder.js';

const MESSAGE_BYTES = 67_108_864;

/** A copy of the demo model whose tokenizer cuts text by another pattern. */
function modelWith(pattern: string): string {
  const folder = tempFolder();
  cpSync(join(packageRoot(), 'config/demo-model'), folder, { recursive: true });
  const path = join(folder, 'tokenizer.json');
  const json = JSON.parse(readFileSync(path, 'utf8')) as { pre_tokenizer: { pretokenizers: { pattern: { Regex: string } }[] } };
  const [split] = json.pre_tokenizer.pretokenizers;
  assert.ok(split);
  split.pattern.Regex = pattern;
  writeFileSync(path, JSON.stringify(json));
  return folder;
}

const story = { prompt: 'Once upon a time', max_tokens: 4, temperature: 0 };

test('runs of 12 million characters are answered with one error each, and the daemon goes on', async (t) => {
  const daemon = await startTestDaemon([`server.max_message_bytes=${MESSAGE_BYTES}`]);
  t.after(() => daemon.close());
  const hostile = await daemon.open();
  const other = await daemon.open();
  const before = await other.call('completions.create', story);
  for (const unit of [' ', 'a', '1', '\u200b', '\u0301']) {
    const text = unit.repeat(12_000_000);
    await assert.rejects(hostile.call('tokenize', { text }), /-32602/);
    await assert.rejects(hostile.call('completions.create', { prompt: text }), /-32006/);
  }
  assert.deepEqual((await other.call('completions.create', story)).choices, before.choices);
});

test('a pattern that backtracks fails the texts that it cannot take, and no others', async (t) => {
  const daemon = await startTestDaemon([`inference.model_name=${modelWith('(x+x+)+y|.')}`]);
  t.after(() => daemon.close());
  const hostile = await daemon.open();
  const other = await daemon.open();
  const failing = [1, 2, 3].map(() => hostile.call('completions.create', { ...story, prompt: 'x'.repeat(40) }));
  const served = [1, 2, 3].map(() => other.call('completions.create', story));
  await Promise.all(failing.map((one) => assert.rejects(one, /-32602/)));
  for (const one of await Promise.all(served)) assert.equal(one.choices?.length, 1);
});

test('a text that would take minutes is given up when its client leaves, and short ones do not wait for it', async (t) => {
  const daemon = await startTestDaemon([`inference.model_name=${modelWith('a+b|.')}`]);
  t.after(() => daemon.close());
  const hostile = await daemon.open();
  const other = await daemon.open();
  const endless = hostile.call('completions.create', { ...story, prompt: 'a'.repeat(400_000), truncate_prompt_tokens: 10 });
  endless.catch(() => {});
  await other.call('completions.create', story);
  await hostile.close();
  const next = await daemon.open();
  const long = await next.call('completions.create', { ...story, prompt: 'b '.repeat(20_000), truncate_prompt_tokens: 10 });
  assert.equal(long.usage?.prompt_tokens, 10);
});
