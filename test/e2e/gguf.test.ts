/**
 * The demo model as a GGUF file of four bits, served by the daemon: vocabulary, chat template and stop ids come from its metadata, and every
 * answer of the evaluation set that has one right form is the answer of the float32 model. Such files are also found by name.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { answerText } from '../../daemon/cli/eval/eval-set.js';
import { modelNeed } from '../../daemon/models/memory.js';
import { packageRoot } from '../../native/index.js';
import { connect } from '../../rpc/client/node.js';
import type { ChatCompletionParams } from '../../rpc/client/types.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { fixture } from '../helpers/native/native-engine.js';
import { tempFolder } from '../helpers/temp-folder.js';

interface Case {
  readonly task: string;
  readonly messages: unknown[];
  readonly tools?: unknown[];
  readonly got: string;
}

const cases = readFileSync(fixture('eval', 'demo.jsonl'), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Case)
  .filter(({ task }) => task !== 'story');

test(`all ${cases.length} answers of the demo model in Q4_K are those of the float32 model`, async () => {
  const at = await startTestDaemon([`inference.model_name=${fixture('golden', 'quant-demo-q4k', 'model.gguf')}`]);
  try {
    const client = await connect({ url: at.ws });
    const answers = await Promise.all(
      cases.map(async ({ messages, tools }) => {
        const body = { messages, temperature: 0, ...(tools ? { tools } : {}) };
        const answer = await client.chat.completions.create(body as unknown as ChatCompletionParams & { stream: false });
        return answerText(answer.choices[0]?.message ?? {});
      }),
    );
    assert.equal(cases.length, 144);
    assert.deepEqual(
      answers,
      cases.map(({ got }) => got),
    );
    await client.close();
  } finally {
    await at.close();
  }
});

test('a file in models.directories and a quantization in the cache are models by name', async () => {
  const file = fixture('golden', 'quant-demo-q4k', 'model.gguf');
  const folder = tempFolder();
  cpSync(file, join(folder, 'tiny.gguf'));
  const cached = join(tempFolder(), 'models--org--quant');
  mkdirSync(join(cached, 'snapshots', 'c0ffee'), { recursive: true });
  mkdirSync(join(cached, 'refs'));
  writeFileSync(join(cached, 'refs', 'main'), 'c0ffee');
  for (const quantization of ['Q4_K_M', 'Q8_0']) cpSync(file, join(cached, 'snapshots', 'c0ffee', `quant-${quantization}.gguf`));
  const at = await startTestDaemon([
    `models.directories=["${folder}"]`,
    `inference.cache_dir="${join(cached, '..')}"`,
    'cache.num_gpu_blocks_override=512',
  ]);
  const inferd = async (...args: string[]): Promise<string> =>
    (await promisify(execFile)(process.execPath, [join(packageRoot(), 'daemon', 'cli', 'inferd.mjs'), ...args], { env: at.env })).stdout;
  try {
    const listed = (await (await fetch(`${at.http}/v1/models`)).json()) as { readonly data: readonly { readonly id: string }[] };
    assert.deepEqual(
      listed.data.map(({ id }) => id),
      ['demo', 'tiny'],
    );
    assert.match(await (await fetch(`${at.http}/api/tags`)).text(), /"tiny/);
    assert.match(await inferd('load', 'tiny'), /^tiny is loaded/);
    assert.match(await inferd('run', '--model', 'tiny', 'Who are you?'), /\w/);
    const found = at.daemon.models.find('tiny');
    const weights = found.engine?.model()?.weightBytes ?? 0;
    // What is planned from the file is the least that the engine takes.
    assert.ok(weights >= found.model.sizeBytes && weights < 2 * found.model.sizeBytes, `${weights} of ${found.model.sizeBytes}`);
    assert.equal(modelNeed(found).weights, found.model.sizeBytes);
    assert.equal(modelNeed(found).kv, 512 * (found.engine?.model()?.blockBytes ?? 0));
    const client = await connect({ url: at.ws });
    const ask = (model: string) => client.completions.create({ model, prompt: 'Once', max_tokens: 4 });
    assert.equal((await ask('org/quant:Q4_K_M')).model, 'org/quant:Q4_K_M');
    await assert.rejects(ask('org/quant'), /several GGUF files .*MODEL:Q4_K_M/);
    await assert.rejects(ask('org/quant:Q2_K'), /no GGUF file of Q2_K; it holds/);
    await assert.rejects(ask('tiny:Q4_K_M'), /"tiny:Q4_K_M" is not served here/);
    await client.close();
  } finally {
    await at.close();
  }
});
