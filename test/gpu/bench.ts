/**
 * Steps of a Llama-3-8B shape with random weights on CUDA against the figures that must hold: `inferd bench forward` over all the pairs of
 * batch and length in one run, with the card's own read bandwidth and product rate beside them. Prints a table last and exits with 1 when
 * a gate does not hold.
 *
 *   node dist/test/gpu/bench.js [eager] [decode | prefill] [1x128 ...]    all shapes when none is named
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '../../native/index.js';
import { deviceEnv } from '../helpers/daemon/device-env.js';
import { fixture } from '../helpers/native/native-engine.js';

/** Milliseconds that must hold, by batch x length. */
const gates = {
  prefill: { '128x128': 350, '16x1024': 356, '4x4096': 385, '1x16384': 490, '1x65536': 3600 },
  decode: { '1x128': 4.2, '16x1024': 5, '128x128': 5.6, '256x128': 8, '1x16384': 5, '1x65536': 7 },
} as const satisfies Record<string, Record<string, number>>;
type Step = keyof typeof gates;

interface Figure {
  readonly ms: number;
  readonly exec_ms: number;
  readonly flops: number;
  readonly of_peak: number;
  readonly bytes: number;
  readonly of_read: number;
}

interface Report {
  readonly backend: string;
  readonly load_ms: number;
  readonly step_bytes: number;
  readonly graphs: boolean;
  readonly shapes: readonly ({ readonly batch: number; readonly length: number } & Record<Step, Figure> & {
      readonly limits: { readonly read_bytes: number; readonly gemm_flops: number };
    })[];
}

const words = process.argv.slice(2);
const named = words.filter((word) => /^\d+x\d+$/.test(word));
const steps = (Object.keys(gates) as Step[]).filter((step) => !words.some((word) => word !== step && word in gates));
const shapes = [...new Set(steps.flatMap((step) => Object.keys(gates[step])))].filter(
  (shape) => named.length === 0 || named.includes(shape),
);

const done = spawnSync(
  process.execPath,
  [
    ...[join(packageRoot(), 'daemon', 'cli', 'inferd.mjs'), 'bench', 'forward', fixture('shapes', 'llama-3-8b')],
    ...['--device', 'cuda', '--load-dummy', '--repeat', '3', '--json', ...(words.includes('eager') ? ['--eager'] : [])],
    ...shapes.flatMap((shape) => ['--shape', shape]),
  ],
  { env: deviceEnv(), stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8', maxBuffer: 2 ** 24 },
);
if (done.status !== 0) process.exit(done.status ?? 1);
const report = JSON.parse(done.stdout) as Report;

const gib = (bytes: number): string => (bytes / 2 ** 30).toFixed(1);
console.log(`${report.backend}, loaded in ${(report.load_ms / 1000).toFixed(2)} s, step memory ${gib(report.step_bytes)} GiB,`);
console.log(
  `graphs ${report.graphs ? 'on' : 'off'}; "of limit" is of the read bandwidth (decode) or of the best product (prefill) beside it\n`,
);
let held = 0;
let missed = 0;
for (const step of steps) {
  for (const shape of report.shapes) {
    const name = `${shape.batch}x${shape.length}`;
    const gate = (gates[step] as Readonly<Record<string, number>>)[name];
    if (gate === undefined) continue;
    const { ms, exec_ms, flops, of_peak, bytes, of_read } = shape[step];
    const holds = ms <= gate;
    if (holds) held++;
    else missed++;
    const rate = step === 'prefill' ? `${(flops / 1e12).toFixed(0)} TFLOP/s` : `${(bytes / 1e9).toFixed(0)} GB/s`;
    const share = `${(100 * (step === 'prefill' ? of_peak : of_read)).toFixed(0)} % of limit`;
    const digits = step === 'prefill' ? 1 : 3;
    console.log(
      `${step.padEnd(8)}${name.padEnd(9)}${ms.toFixed(digits).padStart(9)} ms  (device ${exec_ms.toFixed(digits)})`.padEnd(50) +
        `gate ${String(gate).padEnd(5)}${holds ? 'holds ' : `MISSED by ${(100 * (ms / gate - 1)).toFixed(1)} %`}`.padEnd(28) +
        `${rate.padStart(12)}  ${share}`,
    );
  }
}
const limits = report.shapes.map((shape) => shape.limits);
const most = (values: readonly number[]): number => Math.max(...values);
console.log(
  `\nread ${(most(limits.map((l) => l.read_bytes)) / 1e9).toFixed(0)} GB/s, products ${(most(limits.map((l) => l.gemm_flops)) / 1e12).toFixed(0)} TFLOP/s; ` +
    `${held} of ${held + missed} gates hold`,
);
process.exit(missed === 0 ? 0 : 1);
