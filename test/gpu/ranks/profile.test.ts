/**
 * Profiles of a model split over two GPUs and more: a trace of each rank, and the share of its kernels' time that goes to sums over the
 * ranks, with the waiting for the others that is in it. Random weights in the shape of Llama-3-8B. Needs two GPUs; takes as many as there
 * are, up to 8.
 */
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { test } from 'node:test';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { checkTrace, readTrace } from '../../helpers/daemon/profile.js';
import { record } from '../../helpers/daemon/record.js';
import { demoModel, fixture } from '../../helpers/native/native-engine.js';
import { firstDevices, rankCounts } from '../../helpers/native/rank-counts.js';
import { tempFolder } from '../../helpers/temp-folder.js';

const isSum = (name: string): boolean => /packet_kernel|bulk_kernel|tile_kernel|pushed_kernel|await_kernel|sum_rms_norm/.test(name);

for (const ranks of rankCounts()) {
  test(`each of ${ranks} ranks has a trace of its own, with the sums in it`, async (t) => {
    const model = tempFolder();
    copyFileSync(join(fixture('shapes', 'llama-3-8b'), 'config.json'), join(model, 'config.json'));
    for (const file of ['tokenizer.json', 'tokenizer_config.json']) copyFileSync(join(demoModel(), file), join(model, file));
    const at = await startTestDaemon([
      ...[`inference.model_name=${JSON.stringify(model)}`, 'inference.load_dummy=true', 'inference.device=cuda'],
      ...[firstDevices(ranks), `parallel.tensor_parallel_size=${ranks}`],
      ...['scheduler.max_model_len=2048', 'scheduler.max_num_sequences=128', 'profile.max_events=4000000'],
      `profile.directory=${JSON.stringify(tempFolder())}`,
    ]);
    try {
      for (const streams of [1, 8, 64]) {
        const { files } = await record(at, streams, 64);
        assert.deepEqual(
          files.map((file) => basename(dirname(file))).sort(),
          Array.from({ length: ranks }, (_, rank) => `tp${rank}`),
        );
        for (const file of files) {
          const trace = readTrace(file);
          checkTrace(trace);
          const byName = new Map<string, number>();
          for (const { cat, name, dur } of trace.traceEvents) if (cat === 'kernel') byName.set(name, (byName.get(name) ?? 0) + dur);
          const all = [...byName.values()].reduce((sum, us) => sum + us, 0);
          const sums = [...byName].filter(([name]) => isSum(name)).reduce((sum, [, us]) => sum + us, 0);
          assert.ok(sums > 0 && sums < all, `${[...byName.keys()].join(', ')}`);
          const most = [...byName].sort((a, b) => b[1] - a[1]).slice(0, 6);
          t.diagnostic(
            `${streams} streams, ${basename(dirname(file))}: sums ${((100 * sums) / all).toFixed(1)} % of the kernels' time; ` +
              most.map(([name, us]) => `${name.slice(0, 48)} ${((100 * us) / all).toFixed(1)} %`).join(', '),
          );
        }
      }
    } finally {
      await at.close();
    }
  });
}
