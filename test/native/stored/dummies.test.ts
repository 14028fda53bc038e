/** Random weights in the shape of a quantized checkpoint: they are kept as its own would be, and are numbers that a model computes with. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generate, openPack, openPackRanks, storedPacks } from '../../helpers/native/golden.js';

/** Whose configuration tells more than is taken from it: bytes over those of the checkpoint, and why. */
const others: Readonly<Record<string, readonly [share: number, reason: string]>> = {
  'quant-fp8-ct-channel': [0.93, 'one weight that a pattern leaves plain has codes'],
  'quant-ct-mixed': [1.9, 'groups with patterns for their targets are widened'],
};
const dummy = { loadDummy: true } as const;
const onReference = { ...dummy, isa: 'reference' } as const;
const prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9];

for (const pack of storedPacks) {
  const [share, reason] = others[pack] ?? [1, ''];
  test(`${pack}: random weights take the room of its own${reason === '' ? '' : `, but ${reason}`}`, () => {
    const [real, made] = [openPack(pack), openPack(pack, dummy)];
    const [own, taken] = [real.info().weightBytes, made.info().weightBytes];
    real.close();
    const { tokens, logits } = generate(made, prompt, 4, 16);
    made.close();
    assert.ok(Math.abs(taken / own - share) < 0.01, `${taken / own} of its bytes`);
    assert.equal(tokens.length, 4);
    const last = logits.get(prompt.length - 1) ?? [];
    assert.ok(last.length > 0 && last.every(Number.isFinite));
    assert.ok(new Set(last).size > last.length / 2, 'logits differ');
  });
}

test('ranks have the parts of the same random weights', () => {
  for (const pack of ['quant-gptq-int4-sym', 'quant-awq-int4', 'quant-ct-nvfp4']) {
    const [one, two] = [openPack(pack, onReference), openPackRanks(pack, 2, onReference)];
    const [alone, split] = [generate(one, prompt, 6, 16), generate(two, prompt, 6, 16)];
    one.close();
    two.close();
    assert.deepEqual(split.tokens, alone.tokens, pack);
    const [wanted, got] = [alone, split].map(({ logits }) => logits.get(prompt.length - 1) ?? new Float32Array());
    for (const [i, value] of (wanted ?? []).entries()) assert.ok(Math.abs(value - (got?.[i] ?? Number.NaN)) < 1e-4, `${pack}, logit ${i}`);
  }
});
