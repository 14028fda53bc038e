/**
 * `inferd bench ops`: times each op of a backend alone and with nothing of it in the caches, with its GFLOP/s and GB/s as shares of
 * the limits measured in the same run: on the CPU just before it, on sizes of a small model; on CUDA once, on sizes of Llama-3-8B, by the
 * device's own events. Another backend is timed on the sizes of CUDA, beside the limits of the CPU. Runs on the main thread, which it
 * blocks.
 */
import { type BackendName, loadAddon } from '../../../native/index.js';
import { builtEngine } from '../build.js';
import { table } from '../table.js';
import { CliError, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';
import { backendChoice, backendNamed } from './device.js';
import { deviceLimits, giga, measureLimits, median, percent, type Setup } from './limits.js';
import { explainingNative } from './native-failure.js';
import { type Case, opCases } from './op-cases.js';

export const benchOps: Verb = {
  name: 'ops',
  summary: 'time each native op of a backend',
  details:
    'Sizes are those of a model with 2048 features on the CPU, and of Llama-3-8B on CUDA. Shares are of the read bandwidth and of the ' +
    'arithmetic peak (on CUDA: the best matrix product) measured in the same run.',
  options: [
    { flags: '--device <name>', doc: `${backendChoice}; cpu when not given`, kind: 'text' },
    { flags: '--only <word>', doc: 'only ops whose line holds this word, such as "int8" or "attention"', kind: 'text' },
    { flags: '--repeat <n>', doc: 'timed runs of an op; 7 when not given', kind: 'int', range: [1, 1000] },
    { flags: '--threads <n>', doc: 'compute threads; physical cores when not given', kind: 'int', range: [1, 1024] },
    { flags: '--isa <name>', doc: 'kernel set of the CPU backend; the best one when not given', kind: 'text' },
    jsonOption,
  ],
  examples: ['inferd bench ops', 'inferd bench ops --only int8 --threads 2', 'inferd bench ops --device cuda --only attention'],
  async run(input) {
    await builtEngine(input.io);
    return explainingNative(() => bench(input));
  },
};

/** Bytes and operations a second. */
interface OpLimits {
  readonly read: number;
  /** f32 multiply-adds on a CPU, a 16-bit matrix product on a GPU. */
  readonly flops: number;
  /** Byte dot products of a CPU that has them. */
  readonly dot: number | null;
}

interface OpReport {
  readonly op: string;
  readonly shape: string;
  readonly us: number;
  readonly flops: number;
  readonly of_peak: number;
  readonly bytes: number;
  readonly of_read: number;
  readonly limits: OpLimits;
}

function bench(input: VerbInput): ExitCode {
  const setup: Setup = { isa: input.text('isa') ?? 'auto', threads: input.number('threads') ?? 0 };
  const device = backendNamed(input.text('device') ?? 'cpu');
  const word = input.text('only') ?? '';
  const chosen = opCases(device).filter((c) => `${c.op} ${c.shape}`.includes(word));
  if (chosen.length === 0)
    throw new CliError(`No op has ${JSON.stringify(word.slice(0, 40))} in its line; leave --only out to see all`, EXIT.usage);
  const limitsNow = limitsOf(device, setup);
  const { stderr } = input.io;
  const note = (text: string): void =>
    void (stderr.isTTY === true && stderr.write(`\r\u001b[K${text.slice(0, (stderr.columns ?? 80) - 1)}`));
  const reports = chosen.map((c, i) => {
    note(`${i + 1} of ${chosen.length}: ${c.op}, ${c.shape}`);
    return measure(c, device, setup, { repeat: input.number('repeat') ?? 7, limits: limitsNow() });
  });
  note('');
  if (input.flag('json')) {
    printJson(input.io, { device, ...setup, ops: reports });
    return EXIT.ok;
  }
  const rows = reports.map((r) => [
    ...[r.op, r.shape, r.us.toFixed(device === 'cuda' ? 1 : 0)],
    ...[giga(r.flops), percent(r.of_peak), giga(r.bytes), percent(r.of_read)],
  ]);
  input.io.stdout.write(table(['op', 'sizes', 'us', 'GFLOP/s', 'of peak', 'GB/s', 'of read'], rows));
  const middle = (of: (l: OpLimits) => number): string => giga(median(reports.map((r) => of(r.limits))));
  const dot = reports.every((r) => r.limits.dot === null) ? '-' : middle((l) => l.dot ?? 0);
  const arithmetic =
    device === 'cuda'
      ? `16-bit matrix product ${middle((l) => l.flops)} GFLOP/s`
      : `f32 multiply-add ${middle((l) => l.flops)} GFLOP/s, byte dot product ${dot} GOP/s`;
  input.io.stdout.write(`\nlimits: read ${middle((l) => l.read)} GB/s, ${arithmetic}\n`);
  return EXIT.ok;
}

/** What gives the limits next to an op. */
function limitsOf(device: BackendName, setup: Setup): () => OpLimits {
  if (device === 'cuda') {
    const { readBytes, gemmFlops } = deviceLimits();
    return () => ({ read: readBytes, flops: gemmFlops, dot: null });
  }
  return () => {
    const { readBytes, fmaFlops, dotOps } = measureLimits(setup);
    return { read: readBytes, flops: fmaFlops, dot: dotOps };
  };
}

function measure(c: Case, device: BackendName, setup: Setup, run: { readonly repeat: number; readonly limits: OpLimits }): OpReport {
  const { repeat, limits } = run;
  const result = loadAddon().runOp({ op: c.op, backend: device, ...setup, attrs: c.attrs, inputs: c.inputs(), repeat });
  const us = median([...(result['timings_us'] ?? [])]);
  const flops = (c.flops / us) * 1e6;
  const bytes = (c.bytes / us) * 1e6;
  const peak = c.quantized && limits.dot !== null ? limits.dot : limits.flops;
  return { op: c.op, shape: c.shape, us, flops, of_peak: flops / peak, bytes, of_read: bytes / limits.read, limits };
}
