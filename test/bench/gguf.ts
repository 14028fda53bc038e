/**
 * Speed of GGUF types, beside another engine on the same file: `node dist/test/bench/gguf.js [--type q4_k] [--rounds 3] [--shape 1x512]
 * [--model llama-3.2-1b] [--device cpu] [--keep FOLDER] [--other PROGRAM]`. Models are of a shape of test/fixtures/shapes with random
 * weights; a CPU computes in two threads. PROGRAM is called as `PROGRAM FILE BATCH LENGTH STEPS ROUNDS` and prints one JSON line with
 * prefill_ms and decode_ms. Both take turns, because a machine that is shared changes from minute to minute, and of each the best round
 * counts. One JSON line a type and shape: milliseconds of both; ours as a share of what could be read in the round it was measured in; the
 * bytes of its weights as a share of the file's, and how long it took to load them; and how many times as long the other took.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { packageRoot } from '../../native/index.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { type RandomType, randomTypes, writeRandomGguf } from './random-gguf.js';
import { origin } from './report.js';

const STEPS = 8;
const ROUNDS_OF_A_TURN = 2;

interface Turn {
  readonly prefill_ms: number;
  readonly decode_ms: number;
  /** Of decoding: share of the bytes that could be read. */
  readonly of_read?: number;
  readonly weight_bytes?: number;
  readonly load_ms?: number;
}

const { values } = parseArgs({
  options: {
    type: { type: 'string', multiple: true },
    shape: { type: 'string', multiple: true },
    rounds: { type: 'string', default: '3' },
    model: { type: 'string', default: 'llama-3.2-1b' },
    device: { type: 'string', default: 'cpu' },
    keep: { type: 'string' },
    other: { type: 'string' },
  },
});
const { shape: shapes = ['1x512', '8x128'], keep = tempFolder(), other } = values;
const types = values.type ?? Object.keys(randomTypes);

function run(program: string, args: readonly string[]): Record<string, unknown> {
  const out = execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  return JSON.parse(out.slice(out.indexOf('{'))) as Record<string, unknown>;
}

function ours(file: string, shape: string): Turn {
  const device = values.device === 'cpu' ? ['--device', 'cpu', '--threads', '2', '--steps', `${STEPS}`] : ['--device', values.device];
  const args = ['bench', 'forward', file, '--json', ...device, '--shape', shape];
  const cli = join(packageRoot(), 'daemon', 'cli', 'inferd.mjs');
  const report = run(process.execPath, [cli, ...args, '--repeat', `${ROUNDS_OF_A_TURN}`]);
  const [{ prefill, decode }] = report['shapes'] as [Record<'prefill' | 'decode', { readonly ms: number; readonly of_read: number }>];
  return {
    prefill_ms: prefill.ms,
    decode_ms: decode.ms,
    of_read: decode.of_read,
    weight_bytes: Number(report['weight_bytes']),
    load_ms: Number(report['load_ms']),
  };
}

function theirs(program: string, file: string, shape: string): Turn {
  const report = run(program, [file, ...shape.split('x'), `${STEPS}`, `${ROUNDS_OF_A_TURN}`]);
  return { prefill_ms: Number(report['prefill_ms']), decode_ms: Number(report['decode_ms']) };
}

/** The least, or with `most` the largest, to three digits behind the point. */
function best(turns: readonly Turn[], field: keyof Turn, most = false): number | null {
  const all = turns.map((t) => t[field] ?? Number.NaN);
  return all.length === 0 ? null : Math.round(1000 * (most ? Math.max(...all) : Math.min(...all))) / 1000;
}

mkdirSync(keep, { recursive: true });
for (const type of types as RandomType[]) {
  if (randomTypes[type] === undefined) throw new Error(`--type is one of ${Object.keys(randomTypes).join(', ')}, and not ${type}`);
  const file = join(keep, `${values.model}-${type}.gguf`);
  if (!existsSync(file)) writeRandomGguf(file, type, values.model);
  for (const shape of shapes) {
    const mine: Turn[] = [];
    const others: Turn[] = [];
    for (let i = 0; i < Number(values.rounds); i++) {
      mine.push(ours(file, shape));
      if (other !== undefined) others.push(theirs(other, file, shape));
    }
    const times = (step: 'prefill_ms' | 'decode_ms'): number | null => {
      const their = best(others, step);
      return their === null ? null : Math.round((100 * their) / (best(mine, step) ?? Number.NaN)) / 100;
    };
    const report = {
      type,
      model: values.model,
      device: values.device,
      shape,
      prefill_ms: best(mine, 'prefill_ms'),
      decode_ms: best(mine, 'decode_ms'),
      of_read: best(mine, 'of_read', true),
      weights_of_file: Math.round((1000 * (best(mine, 'weight_bytes') ?? 0)) / statSync(file).size) / 1000,
      load_ms: Math.round(best(mine, 'load_ms') ?? 0),
      other_prefill_ms: best(others, 'prefill_ms'),
      other_decode_ms: best(others, 'decode_ms'),
      prefill_times: times('prefill_ms'),
      decode_times: times('decode_ms'),
    };
    console.log(JSON.stringify({ ...report, rounds: mine.length, ...origin() }));
  }
}
