/**
 * Where a decode step spends its time: kernels by name, from a recording of the native engine's own steps, with the gaps between them.
 * Random weights, graphs on.
 *
 *   node dist/test/gpu/kernels.js [FOLDER of test/fixtures/shapes, llama-3-8b when not given] 1x128 128x128 ...
 */
import { admissionPlan, type BatchShape, blocksOf, decodePlan, prefillPlans } from '../../daemon/cli/bench/plans.js';
import { loadAddon, type NativeEngine, TRACE_KIND } from '../../native/index.js';
import { answer, engineOptions, fixture } from '../helpers/native/native-engine.js';

const chunkTokens = 16384;
const warmSteps = 6;
const steps = 40;
const words = process.argv.slice(2);
const isBatch = (word: string): boolean => /^\d+x\d+$/.test(word);
const folder = words.find((word) => !isBatch(word)) ?? 'llama-3-8b';
const shapes: BatchShape[] = words.filter(isBatch).map((word) => {
  const [batch = 1, length = 128] = word.split('x').map(Number);
  return { batch, length, steps: warmSteps + steps + 2, blockSize: 16 };
});

const engine = loadAddon().createEngine(
  engineOptions(fixture('shapes', folder), {
    ...{ backend: 'cuda', loadDummy: true, kvDtype: 'auto', blockSize: 16, maxSlots: 256, maxBatchTokens: chunkTokens },
    ...{ maxModelLen: 66_048, graphSizes: [1, 2, 4, 8, 16, 32, 48, 64, 128, 256] },
  }),
);
while (!engine.load(256 << 20).done);
engine.allocateKv(Math.max(...shapes.map(blocksOf)));

function collect(e: NativeEngine): void {
  const { errorCode } = answer(e);
  if (errorCode !== 0) throw new Error(`a step failed: ${e.lastError?.()}`);
}

function decode(shape: BatchShape, first: number, count: number): void {
  for (let i = 0; i < count; i++) {
    engine.submit(decodePlan(shape, shape.length + first + i));
    if (i > 0) collect(engine);
  }
  collect(engine);
}

let inUse = 0;
for (const shape of shapes) {
  engine.submit(admissionPlan(shape, engine.info().vocabSize, inUse));
  collect(engine);
  inUse = shape.batch;
  for (const plan of prefillPlans(shape, chunkTokens)) {
    engine.submit(plan);
    collect(engine);
  }
  decode(shape, 0, warmSteps);
  engine.profileStart?.(1_000_000);
  decode(shape, warmSteps, steps);
  const trace = engine.profileStop?.();
  if (trace === undefined) throw new Error('this build records nothing');
  const totals = new Map<string, { count: number; us: number }>();
  let [busy, end, first] = [0, 0, 0];
  for (let i = 0; i < trace.kind.length; i++) {
    const kind = trace.kind[i];
    if (kind !== TRACE_KIND.kernel && kind !== TRACE_KIND.copy) continue;
    const [start = 0, us = 0] = [trace.startUs[i], trace.durationUs[i]];
    if (end === 0) [first, end] = [start, start];
    busy += Math.max(0, start + us - Math.max(end, start));
    end = Math.max(end, start + us);
    const name = (trace.names[trace.name[i] ?? 0] ?? '?').slice(0, 70);
    const total = totals.get(name) ?? { count: 0, us: 0 };
    totals.set(name, { count: total.count + 1, us: total.us + us });
  }
  const each = (value: number): string => (value / steps).toFixed(1).padStart(8);
  console.log(
    `\n${shape.batch}x${shape.length}: ${each((end - first) / 1)} us a step, busy ${each(busy)} us (${trace.source} ${trace.note})`,
  );
  for (const [name, { count, us }] of [...totals].sort((a, b) => b[1].us - a[1].us).slice(0, 22))
    console.log(`${each(us)} us a step ${each(count)} times ${(us / count).toFixed(2).padStart(8)} us each  ${name}`);
}
engine.close();
