/** The library in a program of its own: the example, and programs that end without closing their engine. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../native/index.js';
import { privateEnv } from '../../helpers/daemon/daemon.js';
import { tempFolder } from '../../helpers/temp-folder.js';

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function node(args: readonly string[]): Promise<Result> {
  const child = spawn(process.execPath, args, { env: privateEnv(), cwd: packageRoot() });
  const result = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (result.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (result.stderr += text));
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, ...result })));
}

const program = (text: string): Promise<Result> =>
  node(['--input-type=module', '--eval', `import { createEngine } from 'inferd';\n${text}`]);

test('the example prints its answers, and the README of the library shows it as it is', async () => {
  const file = join(packageRoot(), 'daemon', 'library', 'answers.mjs');
  const { code, stdout, stderr } = await node([file]);
  assert.deepEqual([code, stderr], [0, '']);
  const [english, capital, chinese, ...story] = stdout.trimEnd().split('\n');
  assert.equal(english, 'What is 123 + 456? 123 + 456 = 579');
  assert.equal(capital, 'What is the capital of Japan? The capital of Japan is Tokyo.');
  assert.match(chinese ?? '', /^日本的首都是哪里\? \S+/);
  assert.ok(story.join('').length > 20);
  const [, ...shown] = readFileSync(file, 'utf8').split('\n');
  assert.ok(readFileSync(join(packageRoot(), 'daemon', 'README.md'), 'utf8').includes(shown.join('\n')));
});

test('a program that ends without closing its engine ends, with its own exit code, and what it recorded is written', async () => {
  const folder = tempFolder();
  const { code, stdout, stderr } = await program(`
    const engine = await createEngine({ profile: { directory: ${JSON.stringify(folder)} } });
    await engine.profile.start();
    const { choices } = await engine.generate('Once', { max_tokens: 3 });
    console.log(choices.length);
    process.exitCode = 3;
  `);
  assert.deepEqual([code, stdout, stderr], [3, '1\n', '']);
  assert.equal(readdirSync(join(folder, 'tp0')).filter((name) => name.endsWith('.trace.json.gz')).length, 1);
});

test('an answer that nobody waits for any more still comes before the program ends', async () => {
  const { code, stdout } = await program(`
    const engine = await createEngine();
    void engine.generate('Once', { max_tokens: 50, ignore_eos: true }).then(({ usage }) => console.log(usage.completion_tokens));
  `);
  assert.deepEqual([code, stdout], [0, '50\n']);
});

test('an error that a program does not catch ends it as it ends any other', async () => {
  const { code, stderr } = await program(`
    const engine = await createEngine();
    await engine.generate('x', { temperature: 9 });
  `);
  assert.equal(code, 1);
  assert.match(stderr, /RpcError: Invalid params: temperature/);
});

test('process.exit is not held up by an engine that works', async () => {
  const { code } = await program(`
    const engine = await createEngine();
    for await (const _ of engine.stream('Once', { max_tokens: 3000, ignore_eos: true })) process.exit(5);
  `);
  assert.equal(code, 5);
});
