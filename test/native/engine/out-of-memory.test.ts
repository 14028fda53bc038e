/** Memory that runs out while a step is computed. A file of its own, since it takes from the process what a sanitizer needs too. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { engineFault } from '../../../actors/messages/errors.js';
import { tinyConfig, withModelFolder } from '../../helpers/native/tiny-model.js';

test('memory that runs out in a thread of the sampler fails the step, and the process goes on', {
  skip: process.platform !== 'linux',
}, () => {
  const helpers = new URL('../../helpers/native/', import.meta.url).href;
  // What sampling needs of a vocabulary of 2 million is 8 MB a piece, so that a piece and a half more are not enough for one thread.
  const config = { ...tinyConfig, vocab_size: 2 ** 21, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1 };
  const script = `
    import { execFileSync } from 'node:child_process';
    import { readFileSync } from 'node:fs';
    import { answer, blockSets, openEngine, runStep } from '${helpers}native-engine.js';
    import { buildPlan } from '${helpers}plan.js';
    const slots = [0, 1, 2, 3, 4, 5, 6, 7];
    const limit = (bytes) => execFileSync('prlimit', ['--pid', String(process.pid), '--data=' + bytes + ':']);
    const used = () => 1024 * Number(/VmData:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]);
    const plan = (temperature) => ({
      newSlots: slots.map((slot) => ({ slot, tokens: [1], sampling: { temperature } })),
      blockSets: slots.flatMap((slot) => blockSets(slot, slot, 1)),
      rows: slots.map((slot) => ({ slot, start: 0, count: 1 })),
      samples: slots.map((slot) => ({ row: slot, slot })),
    });
    const open = () => openEngine(process.argv[1], { loadDummy: true, weightDtype: 'bf16', maxBatchTokens: 8 }, 8);
    const engine = open();
    runStep(engine, plan(0));
    const drawing = buildPlan({ freed: slots, ...plan(1) });
    limit(used() + 12 * 2 ** 20);
    engine.submit(drawing);
    const failed = answer(engine);
    limit('unlimited');
    const after = runStep(engine, { freed: slots });
    engine.close();
    const again = open();
    const drawn = runStep(again, plan(1));
    console.log(JSON.stringify([failed.errorCode, failed.samples.length, after.errorCode, drawn.errorCode, drawn.samples.length]));
    again.close();`;
  withModelFolder(config, (folder) => {
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script, folder], { encoding: 'utf8' });
    const want = [engineFault.outOfMemory, 0, engineFault.step, engineFault.none, 8];
    assert.equal(stdout.trim(), JSON.stringify(want), stderr);
  });
});
