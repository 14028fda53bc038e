/**
 * Acceptance of networks that were trained for the demo model, against what float32 references counted. It finds what compared logits cannot:
 * keys and values that are lost between steps.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { demoModel } from '../../helpers/native/native-engine.js';
import { acceptance, fixtureNetworks } from './acceptance.js';

const TOLERANCE = 0.02;

test('a head of EAGLE-3 is right as often as the reference counted on every fourth prompt, and the answers are the recorded ones', async () => {
  const { accepted, prompts, asRecorded } = await acceptance({
    ...{ method: 'eagle3', target: demoModel(), model: fixtureNetworks.eagle3(), tokens: 4, every: 4 },
  });
  assert.equal(asRecorded, prompts);
  for (const [i, share] of [0.993, 0.937, 0.866, 0.796].entries())
    assert.ok(Math.abs((accepted[i] ?? 0) - share) <= TOLERANCE, JSON.stringify(accepted));
});

test('so are the drafts of a small model, and in as many steps', async () => {
  const { accepted, steps, prompts, asRecorded } = await acceptance({
    ...{ method: 'draft', target: demoModel(), model: fixtureNetworks.draft(), tokens: 4, every: 4 },
  });
  assert.equal(asRecorded, prompts);
  // The reference walks the recorded answers alone: what it drafts after a refusal comes of no cache that held refused tokens.
  assert.ok(Math.abs(steps - 146) <= 2, String(steps));
  for (const [i, share] of [0.986, 0.897, 0.822, 0.747].entries())
    assert.ok(Math.abs((accepted[i] ?? 0) - share) <= TOLERANCE, JSON.stringify(accepted));
});

test('drafts that are to be accepted whatever they say are, evenly', async () => {
  const { accepted, steps } = await acceptance({
    ...{ method: 'draft', target: demoModel(), model: fixtureNetworks.draft(), tokens: 4, every: 30, forcedRate: 0.8 },
  });
  // But for the last step of an answer.
  for (const [i, share] of accepted.entries())
    assert.ok(Math.abs(share - 0.8 ** (i + 1)) <= TOLERANCE, JSON.stringify({ accepted, steps }));
});
