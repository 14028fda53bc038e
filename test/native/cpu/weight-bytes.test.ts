/** What models that are quantized in their files take of the CPU's memory: as many bytes as the file has. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { openPack, storedPacks } from '../../helpers/native/golden.js';
import { fixture } from '../../helpers/native/native-engine.js';

/** Bytes over those of the file. */
const within = 1.03;
/** Where it is more, how much, and why. */
const wider: Readonly<Record<string, readonly [most: number, reason: string]>> = {
  'quant-awq-int4': [1.04, 'minima in f16, for zeros of 4 bits, of groups of 64'],
  'quant-ct-nvfp4': [1.06, 'scales of 16 weights in f16, which the file has in 8 bits'],
};

/** Of its tensors. */
function fileBytes(pack: string): number {
  const file = readFileSync(fixture('golden', pack, 'model.safetensors'));
  const header = Number(file.readBigUInt64LE(0));
  return file.length - 8 - header;
}

for (const pack of storedPacks) {
  const [most, reason] = wider[pack] ?? [within, ''];
  test(`${pack} takes the bytes of its file${reason === '' ? '' : `, and some for ${reason}`}`, (t) => {
    const engine = openPack(pack);
    const { weightBytes } = engine.info();
    engine.close();
    const share = weightBytes / fileBytes(pack);
    t.diagnostic(share.toFixed(3));
    assert.ok(share <= most, `${share} of the file`);
  });
}
