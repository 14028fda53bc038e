/**
 * Models of every architecture as GGUF files: the golden packs in the names, metadata and rows that converters of each family write, held to
 * the logits that transformers computed for the packs.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { openGguf, writeGguf } from '../helpers/native/gguf.js';
import { ggufFromPack, hasGgufFamily } from '../helpers/native/gguf-from-pack.js';
import { generate, nmse, packs, readGolden } from '../helpers/native/golden.js';

const folder = mkdtempSync(join(tmpdir(), 'inferd-gguf-families-'));
after(() => rmSync(folder, { recursive: true }));
/** Seen: 1e-13 to 1e-11. */
const sameWeights = 1e-8;

describe('a model as a GGUF file', () => {
  for (const pack of packs.filter(hasGgufFamily)) {
    test(`${pack} has the logits of the model, and its tokens`, (t) => {
      const golden = readGolden(pack);
      const { spec, unsaid } = ggufFromPack(pack);
      const path = writeGguf(join(folder, `${pack}.gguf`), spec);
      const engine = openGguf(path, { weightDtype: 'f32' }, unsaid);
      const run = generate(engine, golden.ids, 32, 16);
      engine.close();
      t.diagnostic(`nmse ${nmse(run, golden).toExponential(2)}`);
      assert.ok(nmse(run, golden) <= sameWeights, `nmse ${nmse(run, golden)}`);
      assert.deepEqual(run.tokens, golden.greedyIds);
    });
  }
});
