/** The grammars of a process: one number for one text, in all threads, as long as somebody holds it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { NativeError } from '../../../native/index.js';
import { addon, allowed, byteTokens, limits, vocabulary } from './matcher.js';

const numberOf = (text: string, more = {}): Promise<number> => addon.compileGrammar(vocabulary(byteTokens), text, { ...limits, ...more });

/** Compiles the texts in another thread, which takes one token under each, and answers with the numbers. */
async function inWorker(texts: readonly string[], rounds: number): Promise<number[]> {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    (async () => {
      const { addon, vocabulary, byteTokens, limits } = await import(workerData.helper);
      const numbers = [];
      for (let round = 0; round < workerData.rounds; round++) {
        for (const text of workerData.texts) {
          const number = await addon.compileGrammar(vocabulary(byteTokens), text, limits);
          const matcher = addon.createGrammarMatcher(number);
          if (!matcher.accept(97)) throw new Error('not accepted');
          numbers.push(number);
          if (round > 0) addon.releaseGrammar(number);
        }
      }
      parentPort.postMessage(numbers);
    })();`;
  const workerData = { helper: new URL('./matcher.js', import.meta.url).href, texts, rounds };
  const worker = new Worker(code, { eval: true, workerData });
  const [numbers] = (await once(worker, 'message')) as [number[]];
  await once(worker, 'exit');
  return numbers;
}

describe('a store of grammars', () => {
  test('gives the same text the same number, and another text another one', async () => {
    const [a, again, other] = [await numberOf('root ::= "a"'), await numberOf('root ::= "a"'), await numberOf('root ::= "b"')];
    assert.ok(a > 0);
    assert.equal(a, again);
    assert.notEqual(a, other);
    for (const number of [a, again, other]) addon.releaseGrammar(number);
  });

  test('gives the same vocabulary the same number', () => {
    assert.equal(vocabulary(['a', 'b']), vocabulary(['a', 'b']));
    assert.notEqual(vocabulary(['a', 'b']), vocabulary(['ab', '']));
    assert.notEqual(vocabulary(['a', 'b']), vocabulary(['b', 'a']));
  });

  test('tells grammars of one text apart by what is allowed in it', async () => {
    const text = 'root ::= "a" # %scope';
    const [plain, extended] = [await numberOf(text), await numberOf(text, { extensions: true })];
    assert.notEqual(plain, extended);
    addon.releaseGrammar(plain);
    addon.releaseGrammar(extended);
  });

  test('compiles a text once for threads that ask at once', async () => {
    const texts = Array.from({ length: 20 }, (_, i) => `root ::= "a" [b-z]{0,${i + 50}} ("c" | [^"]* "x")`);
    const all = await Promise.all([inWorker(texts, 3), inWorker(texts, 3), inWorker(texts, 3), inWorker(texts, 3)]);
    for (const numbers of all) assert.deepEqual(numbers, all[0]);
    assert.equal(new Set(all[0]).size, texts.length);
  });

  test('keeps a grammar for the matchers that were made of it', async () => {
    const number = await numberOf('root ::= "ab"');
    const matcher = addon.createGrammarMatcher(number);
    addon.releaseGrammar(number);
    addon.releaseGrammar(number);
    assert.equal(matcher.accept(97), true);
    assert.deepEqual(allowed(matcher.mask()), [98]);
  });

  test('forgets the ones used longest ago when they take too much memory', async () => {
    const first = await numberOf('root ::= "first"');
    addon.releaseGrammar(first);
    assert.equal(await numberOf('root ::= "first"'), first);
    addon.releaseGrammar(first);
    for (let i = 0; i < 30; i++) addon.releaseGrammar(await numberOf(`root ::= "${i}" ("a" [bc] "d"){20000}`));
    assert.throws(() => addon.createGrammarMatcher(first), /there is no such grammar/);
    assert.notEqual(await numberOf('root ::= "first"'), first);
  });

  test('refuses a text for all who wait for it', async () => {
    const asked = await Promise.allSettled(Array.from({ length: 8 }, () => numberOf('root ::= nowhere')));
    for (const one of asked) {
      assert.equal(one.status, 'rejected');
      assert.match((one.reason as NativeError).message, /"nowhere" in line 1/);
    }
  });

  test('says what it does not know', async () => {
    await assert.rejects(addon.compileGrammar(1 << 30, 'root ::= "a"', limits), /There is no vocabulary 1073741824\./);
    assert.throws(() => addon.createGrammarMatcher(1 << 30), /there is no such grammar/);
    assert.throws(() => addon.grammarVocabulary(Buffer.from('ab'), Int32Array.of(0, 3), new Int32Array()), /offsets of token 0 are wrong/);
    assert.throws(() => addon.grammarVocabulary(Buffer.from('ab'), Int32Array.of(0, 2), Int32Array.of(1)), /not one of the 1 tokens/);
  });
});
