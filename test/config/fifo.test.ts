/**
 * FIFOs where files of a model are looked for: opening one that nobody writes to never returns, and would hold up the daemon's only thread of
 * requests. Each reader runs in a process of its own, which is ended when it hangs.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { tempFolder } from '../helpers/temp-folder.js';

const HANG_MS = 60_000;
const dist = new URL('../../', import.meta.url).href;

function fifo(...path: string[]): string {
  const file = join(tempFolder(), ...path);
  mkdirSync(dirname(file), { recursive: true });
  assert.equal(spawnSync('mkfifo', [file]).status, 0);
  return file;
}

/** What a call of a module gives, as JSON, or the message of what it throws; "hangs" when it does not end. */
function outcome(module: string, call: string): string {
  const script = `
    import * as m from '${dist}${module}';
    try { console.log(JSON.stringify(${call})); } catch (error) { console.log(error.message); }`;
  const { stdout, stderr, signal } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: HANG_MS,
    killSignal: 'SIGKILL',
  });
  return signal === 'SIGKILL' ? 'hangs' : stdout.trim() || stderr;
}

describe('a FIFO in the place of', () => {
  test('a GGUF file is refused', () => {
    const file = fifo('model.gguf');
    assert.equal(outcome('config/gguf/read.js', `m.readGguf(${JSON.stringify(file)}, () => true)`), `${file} is not a file`);
  });

  test("a model's settings is refused", () => {
    const file = fifo('model.toml');
    assert.equal(
      outcome('config/model-file.js', `m.configOfDefault({}, ${JSON.stringify(file)})`),
      `The model's file ${file} is not a file`,
    );
  });

  test('a file of the tokenizer is refused', () => {
    const file = fifo('model', 'tokenizer_config.json');
    const call = `m.readModelFile(${JSON.stringify(dirname(file))}, 'tokenizer_config.json')`;
    assert.equal(outcome('actors/tokenizer/model/model-files.js', call), `${file} is not a file`);
  });

  test('what the cache says of a revision or of a download is left out', () => {
    const ref = fifo('models--org--name', 'refs', 'main');
    const cache = join(ref, '..', '..', '..');
    assert.equal(outcome('config/models/hub-cache.js', `m.findSnapshot(${JSON.stringify(cache)}, 'org/name', 'main')`), 'null');
    const pull = fifo('models--org--name', '.inferd-pull.json');
    assert.equal(outcome('config/models/hub-cache.js', `m.listUnfinished(${JSON.stringify(join(pull, '..', '..'))})`), '[]');
  });
});
