/**
 * The parts of the command line that are pure: verbs, tables, progress, answers of an evaluation, failures as sentences.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { editDistance, nearest, similar } from '../../../config/nearest.js';
import { tally } from '../../../daemon/cli/eval/eval.js';
import { answerText, type EvalCase, respace } from '../../../daemon/cli/eval/eval-set.js';
import { explain, retryAfterMs } from '../../../daemon/cli/failure.js';
import { barBlocks, progressLine } from '../../../daemon/cli/progress.js';
import { formatBytes, formatDuration, hanging, table } from '../../../daemon/cli/table.js';
import { CliError } from '../../../daemon/cli/verb.js';
import { allVerbs, verbsFor } from '../../../daemon/cli/verbs.js';

test('a verb is loaded alone by its name, and all of them where a command line begins with anything else', async () => {
  const all = await allVerbs();
  for (const verb of all) assert.deepEqual(await verbsFor([verb.name, '--help']), [verb]);
  for (const argv of [[], ['help', 'run'], ['--verbose', 'run'], ['runn'], ['constructor']]) assert.deepEqual(await verbsFor(argv), all);
});

test('a tool call is compared as the JSON text that the model says for it', () => {
  const call = (name: string, args: string) => ({ function: { name, arguments: args } });
  assert.equal(answerText({ content: 'hello' }), 'hello');
  assert.equal(answerText({ content: null }), '');
  assert.equal(
    answerText({ content: null, tool_calls: [call('play_music', '{"artist":"Ada"}')] }),
    '{"name": "play_music", "parameters": {"artist": "Ada"}}',
  );
  assert.equal(
    answerText({ tool_calls: [call('add', '{"x": 1.0, "list":[1,2], "s": "a, b: \\"c\\""}')] }),
    '{"name": "add", "parameters": {"x": 1.0, "list": [1, 2], "s": "a, b: \\"c\\""}}',
  );
});

test('respacing changes no value, whatever the JSON', () => {
  fc.assert(
    fc.property(fc.json(), (json) => {
      assert.deepEqual(JSON.parse(respace(json)), JSON.parse(json));
      assert.equal(respace(respace(json)), respace(json));
      assert.equal(respace(JSON.stringify(JSON.parse(json), null, 3)), respace(JSON.stringify(JSON.parse(json))));
    }),
  );
});

test('exact matches and agreement with "got" are counted per task in the order of the file', () => {
  const one = (task: string, want: string, got: string | null, answer: string | null) => ({
    test: { line: 1, task, messages: [], tools: null, want, got } satisfies EvalCase,
    answer,
    failure: answer === null ? new Error('x') : null,
  });
  const { tasks, all } = tally([one('b', '1', '1', '1'), one('a', '1', '2', '2'), one('b', '1', null, null)]);
  assert.deepEqual(tasks, [
    { task: 'b', n: 2, exact: 1, withGot: 1, asGot: 1, failed: 1 },
    { task: 'a', n: 1, exact: 0, withGot: 1, asGot: 1, failed: 0 },
  ]);
  assert.deepEqual(all, { task: 'all', n: 3, exact: 1, withGot: 2, asGot: 2, failed: 1 });
});

test('answers of the daemon become a sentence with advice and an exit code', () => {
  const rpc = (code: number, message: string, data?: unknown) => Object.assign(new Error(message), { code, data });
  const outcome = (error: Error) => {
    const e = explain(error);
    assert.ok(e instanceof CliError);
    return [e.exitCode, e.message];
  };
  assert.deepEqual(outcome(rpc(-32005, 'Too many requests are waiting.')), [69, 'Too many requests are waiting; try again in a moment']);
  assert.deepEqual(outcome(rpc(-32602, 'The parameters are not valid', [{ path: 'temperature', message: 'must be at most 2' }])), [
    64,
    'The parameters are not valid; change the request (temperature: must be at most 2)',
  ]);
  assert.deepEqual(outcome(rpc(-1, 'odd')), [70, 'The daemon answered: odd']);
  assert.equal(outcome(Object.assign(new Error('read'), { code: 'ECONNRESET' }))[0], 69);
  assert.equal(retryAfterMs(rpc(-32003, 'loading', { retry_after_ms: 200 })), 200);
  assert.equal(retryAfterMs(rpc(-32003, 'loading')), 500);
  assert.equal(retryAfterMs(rpc(-32005, 'busy')), null);
  const bug = new TypeError('x is not a function');
  assert.equal(explain(bug), bug);
});

test('a long text stands behind its head, broken between words as wide as the terminal is', () => {
  assert.equal(hanging('ok  name  ', 'one two three four', 22), 'ok  name  one two\n          three four\n');
  assert.equal(hanging('ok  name  ', 'one two three four', 28), 'ok  name  one two three four\n');
  assert.equal(hanging('ok  name  ', 'one two three four', undefined), 'ok  name  one two three four\n', 'into a pipe');
  assert.equal(hanging('ok  name  ', 'one two three four', 20), 'ok  name  one two three four\n', 'no room for it');
  assert.equal(hanging('ok  ', '/a/path/without/a/space and more', 20), 'ok  /a/path/without/a/space\n    and more\n');
  assert.equal(hanging('ok  ', '', 20), 'ok  \n');
});

test('tables align numbers to the right and text to the left, wide characters included', () => {
  assert.equal(
    table(
      ['name', 'size'],
      [
        ['猫', '9 B'],
        ['long', '10.5 KiB'],
      ],
    ),
    'name      size\n猫         9 B\nlong  10.5 KiB\n',
  );
});

test('sizes and durations read well', () => {
  assert.deepEqual([0, 1023, 1024, 14.6 * 2 ** 20, 2 ** 50].map(formatBytes), ['0 B', '1023 B', '1.0 KiB', '14.6 MiB', '1024.0 TiB']);
  assert.deepEqual([0, 999, 1500, 63_000, 7_500_000].map(formatDuration), ['0 ms', '999 ms', '1.5 s', '1 min 3 s', '2 h 5 min']);
});

test('a progress line shows phase and share, and never exceeds the terminal', () => {
  const line = progressLine({ phase: 'weights', done: 7 * 2 ** 20, total: 14 * 2 ** 20 }, 100);
  assert.match(line, /^█{14}░{14} {2}50 % {2}loading the weights {2}7\.0 MiB of 14\.0 MiB$/);
  const plain = barBlocks({ LANG: 'en_US.UTF-8', LC_ALL: 'C' });
  assert.match(progressLine({ phase: 'kv', done: 1, total: 2 }, 100, plain), /^#{14}\.{14} {2}50 % /);
  for (const env of [{}, { LANG: 'de_DE.utf8' }, { LC_ALL: '', LANG: 'C.UTF-8' }])
    assert.match(progressLine({ phase: 'kv', done: 1, total: 2 }, 100, barBlocks(env)), /^█/);
  fc.assert(
    fc.property(fc.nat(200), fc.double(), fc.double(), (columns, done, total) => {
      assert.ok(progressLine({ phase: 'kv', done, total }, columns).length <= Math.max(0, columns - 1));
    }),
  );
});

test('the nearest name is found through swaps, dashes and case', () => {
  const known = ['max_num_sequences', 'max_num_batched_tokens', 'policy'];
  assert.equal(nearest('max-num-seqs', known), 'max_num_sequences');
  assert.equal(nearest('POLCIY', known), 'policy');
  assert.equal(nearest('x', []), null);
  assert.equal(similar('polciy', known), 'policy');
  assert.equal(similar('max_num_seq', known), 'max_num_sequences');
  assert.equal(similar('device', known), null);
  assert.equal(editDistance('ab', 'ba'), 1);
  assert.equal(editDistance('kitten', 'sitting'), 3);
  fc.assert(
    fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (a, b) => {
      assert.equal(editDistance(a, b), editDistance(b, a));
      assert.equal(editDistance(a, b) === 0, a === b);
      assert.ok(editDistance(a, b) <= Math.max(a.length, b.length));
    }),
  );
});
