/** The grammars of a process: one number for one text, in all threads, as long as somebody holds it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { schema } from '../../../config/schema.js';
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
  // A thread may end in the turn that brings its last message.
  const [[numbers]] = (await Promise.all([once(worker, 'message'), once(worker, 'exit')])) as [[number[]], unknown];
  return numbers;
}

/** Begins to compile the text in another thread, which is terminated: when it has the grammar, or at once. */
async function inTerminated(text: string, when: 'held' | 'asked'): Promise<void> {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    import(workerData.helper).then(async ({ addon, vocabulary, byteTokens, limits }) => {
      const held = addon.compileGrammar(vocabulary(byteTokens), workerData.text, limits);
      if (workerData.when === 'held') await held;
      parentPort.postMessage('');
      setInterval(() => {}, 1000);
    });`;
  const workerData = { helper: new URL('./matcher.js', import.meta.url).href, text, when };
  const worker = new Worker(code, { eval: true, workerData });
  await once(worker, 'message');
  await worker.terminate();
}

/** Compiles the text for each of the vocabularies in another thread, which then ends and has given nothing back. */
async function inEnded(vocabularies: readonly (readonly string[])[], text: string): Promise<void> {
  const code = `
    const { workerData } = require('node:worker_threads');
    import(workerData.helper).then(async ({ addon, vocabulary, limits }) => {
      for (const tokens of workerData.vocabularies) {
        if (vocabulary(tokens) !== vocabulary(tokens)) throw new Error('another number');
        await addon.compileGrammar(vocabulary(tokens), workerData.text, limits);
      }
    });`;
  const workerData = { helper: new URL('./matcher.js', import.meta.url).href, vocabularies, text };
  const [status] = (await once(new Worker(code, { eval: true, workerData }), 'exit')) as [number];
  assert.equal(status, 0);
}

/** A thread that holds the vocabulary until it is terminated. */
async function holder(tokens: readonly string[]): Promise<Worker> {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    import(workerData.helper).then(({ vocabulary }) => {
      parentPort.postMessage(vocabulary(workerData.tokens));
      setInterval(() => {}, 1000);
    });`;
  const workerData = { helper: new URL('./matcher.js', import.meta.url).href, tokens };
  const worker = new Worker(code, { eval: true, workerData });
  await once(worker, 'message');
  return worker;
}

/** Makes the store forget what nobody holds. */
async function crowd(): Promise<void> {
  for (let i = 0; i < 30; i++) addon.releaseGrammar(await numberOf(`root ::= "${i}" ("a" [bc] "d"){20000}`));
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

  test('keeps every vocabulary that somebody holds, however many they are', async () => {
    const before = addon.grammarCounts().vocabularies;
    const numbers = Array.from({ length: 100 }, (_, i) => vocabulary(['a', `held ${i}`]));
    assert.equal(addon.grammarCounts().vocabularies, before + 100);
    for (const number of numbers) addon.releaseGrammar(await addon.compileGrammar(number, 'root ::= "a"', limits));
  });

  test('forgets vocabularies and their grammars when the threads end that held them', async () => {
    vocabulary(['mine']);
    const before = addon.grammarCounts();
    const ofThread = (i: number): string[][] => Array.from({ length: 10 }, (_, j) => ['a', `${i} ${j}`]);
    for (let i = 0; i < 10; i++) await inEnded([['mine'], ...ofThread(i)], 'root ::= "mine" | "a"');
    assert.deepEqual(addon.grammarCounts(), { vocabularies: before.vocabularies, grammars: before.grammars + 1 });
  });

  test('keeps a vocabulary until the last of its threads ends', async () => {
    const before = addon.grammarCounts().vocabularies;
    const [first, last] = [await holder(['a', 'shared']), await holder(['a', 'shared'])];
    assert.equal(addon.grammarCounts().vocabularies, before + 1);
    await first.terminate();
    assert.equal(addon.grammarCounts().vocabularies, before + 1);
    await last.terminate();
    assert.equal(addon.grammarCounts().vocabularies, before);
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
    await crowd();
    assert.throws(() => addon.createGrammarMatcher(first), /there is no such grammar/);
    assert.notEqual(await numberOf('root ::= "first"'), first);
  });

  for (const when of ['held', 'asked'] as const) {
    test(`has back what a thread held that was terminated, ${when === 'held' ? 'with the grammar' : 'while it was compiled'}`, async () => {
      const text = `root ::= "${when}" ("a" [bc] "d"){3000}`;
      await inTerminated(text, when);
      const number = await numberOf(text);
      addon.releaseGrammar(number);
      await crowd();
      assert.throws(() => addon.createGrammarMatcher(number), /there is no such grammar/);
    });
  }

  test('lets no thread give back what another one holds', async () => {
    const number = await numberOf('root ::= "mine"');
    const code = `
      const { parentPort, workerData } = require('node:worker_threads');
      import(workerData.helper).then(({ addon }) => parentPort.postMessage(addon.releaseGrammar(workerData.number)));`;
    const workerData = { helper: new URL('./matcher.js', import.meta.url).href, number };
    await once(new Worker(code, { eval: true, workerData }), 'exit');
    await crowd();
    assert.equal(addon.createGrammarMatcher(number).accept('m'.charCodeAt(0)), true);
    addon.releaseGrammar(number);
  });

  test('takes the largest limit of memory that the options allow', async () => {
    const { max } = schema.structured_output.max_compiled_bytes;
    addon.releaseGrammar(await numberOf('root ::= "large"', { maxMemoryBytes: max }));
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
