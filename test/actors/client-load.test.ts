import assert from 'node:assert/strict';
import { test } from 'node:test';
import { idsSize, promptSize, TokenizerLoad } from '../../actors/client-load.js';
import { createCounters, TOKENIZER_COUNTER } from '../../actors/runtime/counters.js';

test('the size of a prompt grows with everything in it, and an empty one has a size too', () => {
  const text = (length: number) => promptSize({ kind: 'text', text: 'x'.repeat(length), addSpecialTokens: true });
  assert.ok(text(0) > 0);
  assert.equal(text(1_000_000) - text(0), 1_000_000);
  assert.equal(idsSize(new Array(1000).fill(1)) - idsSize([]), 8000);
  assert.equal(promptSize({ kind: 'ids', ids: [1, 2, 3] }), idsSize([1, 2, 3]));
  const chat = (more: object, tools?: readonly unknown[]) =>
    promptSize({
      kind: 'chat',
      messages: [{ role: 'user', content: 'x', ...more }],
      ...(tools === undefined ? {} : { tools }),
      addGenerationPrompt: true,
    });
  const plain = chat({});
  assert.ok(chat({ extra: [{ deep: 'y'.repeat(5000) }] }) >= plain + 5000);
  assert.ok(chat({ ['n'.repeat(5000)]: 1 }) >= plain + 5000);
  assert.ok(chat({ list: new Array(5000).fill(null) }) >= plain + 5000);
  assert.ok(chat({}, ['z'.repeat(5000)]) >= plain + 5000);
});

test('what was handed out is held until the tokenizer lets go of it, is dead, or never got it', () => {
  const load = new TokenizerLoad(1_000_000);
  const counters = [createCounters(TOKENIZER_COUNTER.cells), createCounters(TOKENIZER_COUNTER.cells)] as const;
  counters.forEach((own, index) => {
    load.attach(index, own);
  });
  load.handOut(0, 600_000);
  load.handOut(1, 300_000);
  assert.deepEqual([load.held(0), load.held(1), load.held(7)], [600_000, 300_000, 0]);
  assert.equal(load.hasRoom(100_000), true);
  assert.equal(load.hasRoom(100_001), false);
  counters[0][TOKENIZER_COUNTER.letGo] = 200_000;
  assert.equal(load.hasRoom(300_000), true);
  load.takeBack(1, 300_000);
  assert.equal(load.held(1), 0);
  load.detach(0);
  assert.equal(load.hasRoom(1_000_000), true);
});

test('large prompts leave room for small ones, and one prompt may always be handed out', () => {
  const load = new TokenizerLoad(1_000_000);
  load.attach(0, createCounters(TOKENIZER_COUNTER.cells));
  assert.equal(load.hasRoom(5_000_000), true);
  load.handOut(0, 1_000_000);
  assert.equal(load.hasRoom(70_000), false);
  assert.equal(load.hasRoom(60_000), true);
  for (let i = 0; i < 16; i++) load.handOut(0, 60_000);
  assert.equal(load.hasRoom(60_000), false);
});
