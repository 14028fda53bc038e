/**
 * Profiles of a daemon on CUDA: every kernel on the clock of the host, also of graphs that were recorded before the profile, and how
 * idle the device is between decode steps. The idle share is printed for a Llama-3-8B shape with random weights.
 */
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { checkTrace, readTrace, spans, stepsOf } from '../helpers/daemon/profile.js';
import { record } from '../helpers/daemon/record.js';
import { demoModel, fixture } from '../helpers/native/native-engine.js';
import { tempFolder } from '../helpers/temp-folder.js';

/** Events place a step on the host's clock to about the interval at which they are polled. */
const clockSlackUs = 300;

for (const eager of [false, true]) {
  test(`the trace has every kernel of every step, ${eager ? 'eager' : 'replayed from graphs'}`, async (t) => {
    const folder = tempFolder();
    const at = await startTestDaemon([
      ...['inference.device=cuda', `profile.directory=${JSON.stringify(folder)}`, `inference.enforce_eager=${eager}`],
    ]);
    try {
      const { files, summary } = await record(at, 4, 64);
      const [s] = summary;
      assert.ok(s !== undefined && files[0] !== undefined);
      assert.equal(s.device.source, 'cupti', s.device.note);
      const trace = readTrace(files[0]);
      checkTrace(trace);
      const decodes = spans(trace, 'decode step');
      const kernels = trace.traceEvents.filter((e) => e.cat === 'kernel');
      const copies = trace.traceEvents.filter((e) => e.cat === 'copy');
      t.diagnostic(`${decodes.length} decode steps, ${kernels.length} kernels, ${copies.length} copies and fills`);
      t.diagnostic(`names: ${[...new Set(kernels.map((e) => e.name))].slice(0, 12).join(', ')}`);
      t.diagnostic(
        `busy ${s.busy_ms} ms, idle ${s.idle_ms} ms (share ${s.idle_share}), step ${s.median_step_ms} ms, period ${s.median_period_ms} ms`,
      );
      assert.ok(decodes.length >= 60 && s.decode_steps === decodes.length);
      assert.deepEqual(stepsOf(spans(trace, 'plan')), stepsOf(trace.traceEvents.filter((e) => e.cat === 'step')));
      assert.ok(s.busy_ms > 0 && s.idle_share !== null && s.idle_share < 1);
      assert.ok(copies.length >= decodes.length, 'each step brings its tokens home');
      const counts = decodes.map(({ ts, dur }) => {
        const inside = kernels.filter((k) => k.ts + k.dur / 2 >= ts - clockSlackUs && k.ts + k.dur / 2 <= ts + dur + clockSlackUs);
        return inside.length;
      });
      assert.ok(Math.min(...counts) > 5, `a step with ${Math.min(...counts)} kernels`);
      const submits = new Map(spans(trace, 'submit').map((e) => [e.args['step'], e]));
      const results = new Map(spans(trace, 'write result').map((e) => [e.args['step'], e]));
      for (const { ts, dur, args } of decodes) {
        assert.ok(ts >= (submits.get(args['step'])?.ts ?? Number.POSITIVE_INFINITY), 'no step runs before it was submitted');
        assert.ok(ts + dur <= (results.get(args['step'])?.ts ?? 0) + 1, 'no result comes before its step has ended');
      }
      const first = Math.min(...kernels.map((k) => k.ts));
      assert.ok(first >= Math.min(...decodes.map((d) => d.ts), ...spans(trace, 'prompt step').map((p) => p.ts)) - clockSlackUs);
    } finally {
      await at.close();
    }
  });
}

test('how idle the device is over decode steps of a Llama-3-8B shape, through the whole daemon', async (t) => {
  const model = tempFolder();
  copyFileSync(join(fixture('shapes', 'llama-3-8b'), 'config.json'), join(model, 'config.json'));
  for (const file of ['tokenizer.json', 'tokenizer_config.json']) copyFileSync(join(demoModel(), file), join(model, file));
  const at = await startTestDaemon([
    ...[`inference.model_name=${JSON.stringify(model)}`, 'inference.load_dummy=true', 'inference.device=cuda'],
    ...['scheduler.max_model_len=2048', 'scheduler.max_num_sequences=128', 'profile.max_events=4000000'],
    `profile.directory=${JSON.stringify(tempFolder())}`,
  ]);
  try {
    for (const streams of [1, 32, 128]) {
      const { summary } = await record(at, streams, 128);
      const [s] = summary;
      assert.ok(s !== undefined && s.idle_share !== null && s.busy_ms > 0);
      t.diagnostic(
        `${streams} streams: idle share ${(100 * s.idle_share).toFixed(2)} % of ${s.decode_steps} decode steps (${s.device.source}), ` +
          `step ${s.median_step_ms} ms, period ${s.median_period_ms} ms, ${s.events.device} events, ${s.dropped.device} dropped`,
      );
    }
  } finally {
    await at.close();
  }
});
