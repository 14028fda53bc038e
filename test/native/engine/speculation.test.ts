/**
 * Drafts change the speed of an answer and nothing else: the same work with and without drafts of n-grams must get the same tokens and
 * log-probabilities, bit for bit.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { loadAddon } from '../../../native/index.js';
import { openEngine, openRanks } from '../../helpers/native/native-engine.js';
import { withModelFolder } from '../../helpers/native/tiny-model.js';
import { type Answers, answersOf, assertAlike, BLOCKS, both, drafting, END, kinds, model, native, VOCAB, WARM } from './drafted-work.js';

describe('10,000 tokens with drafts are those without', () => {
  for (const [index, [name, kind]] of Object.entries(kinds).entries()) {
    test(`under ${name}`, () => {
      const { plain, drafted } = both(kind, 320, index + 1);
      assertAlike(plain, drafted);
      assert.ok(drafted.generated >= 10_000, String(drafted.generated));
    });
  }
});

describe('tokens with drafts are those without', () => {
  const addon = loadAddon();
  const held: number[] = [];
  after(() => {
    for (const grammar of held) addon.releaseGrammar(grammar);
  });

  test('under a grammar, also one that nothing can go on in', async () => {
    // Ids are the letters a, b, ..; one ends an answer.
    const words = Array.from({ length: VOCAB }, (_, id) => (id === END ? Buffer.alloc(0) : Buffer.from(String.fromCharCode(97 + id))));
    const offsets = [0, ...words].map((_, i) => words.slice(0, i).reduce((sum, word) => sum + word.length, 0));
    const vocabulary = addon.grammarVocabulary(Buffer.concat(words), Int32Array.from(offsets), Int32Array.of(END));
    const limits = {
      maxTextBytes: 2 ** 20,
      maxStates: 2 ** 16,
      maxMemoryBytes: 2 ** 26,
      maxDepth: 100,
      deadlineMs: 10_000,
      extensions: false,
    };
    for (const text of ['root ::= ([a-d] [e-g] "i"){9,30}', 'root ::= ("ab" | "ac" [d-f]){12,30}', 'root ::= "abc"{8,9} "Z"']) {
      const grammar = await addon.compileGrammar(vocabulary, text, limits);
      held.push(grammar);
      const { plain, drafted } = both({ grammar }, 150, 77);
      assert.deepEqual([...drafted.refused].sort(), [...plain.refused].sort());
      for (const [key, tokens] of plain.tokens) {
        // A sequence that is stuck ends its siblings, wherever they are.
        const most = plain.refused.includes(Number(key.split('.')[0])) ? drafted.tokens.get(key)?.length : undefined;
        assert.deepEqual(drafted.tokens.get(key)?.slice(0, tokens.length), tokens.slice(0, most), key);
      }
      assert.ok(drafted.accepted > 50, JSON.stringify({ ...drafted, tokens: 0, logprobs: 0, refused: 0 }));
      assert.equal(drafted.refused.length > 0, text.includes('Z'));
    }
  });

  test('on two ranks, which give the same bits', () => {
    withModelFolder(model, (folder) => {
      const run = (speculative: boolean): Answers => {
        const engine = openRanks(folder, 2, { ...native, ...(speculative ? drafting : {}) }, BLOCKS, BLOCKS);
        try {
          return answersOf(engine, { sampling: { temperature: WARM } }, { numRequests: 60, seed: 5, speculative });
        } finally {
          engine.close();
        }
      };
      const [plain, drafted] = [run(false), run(true)];
      assert.deepEqual([...drafted.tokens].sort(), [...plain.tokens].sort());
      assert.ok(drafted.accepted > 50);
    });
  });

  test('as far as they come before requests are aborted at random', () => {
    withModelFolder(model, (folder) => {
      const run = (speculative: boolean): Answers => {
        const engine = openEngine(folder, { ...native, ...(speculative ? drafting : {}) }, BLOCKS, BLOCKS);
        try {
          return answersOf(engine, {}, { numRequests: 300, seed: 9, speculative, aborts: speculative });
        } finally {
          engine.close();
        }
      };
      const [plain, drafted] = [run(false), run(true)];
      assert.ok(drafted.generated < plain.generated && drafted.accepted > 200);
      for (const [key, tokens] of drafted.tokens) assert.deepEqual(tokens, plain.tokens.get(key)?.slice(0, tokens.length), key);
    });
  });
});
