/** The rule that memory is flat: what breaks it, and what does not. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Figures } from './figures.js';
import { Random } from './random.js';

const MIB = 2 ** 20;
/** Between two looks at rest. */
const LOOK_S = 10;

/** A life of `seconds` that warms up over 100 MiB in 150 s, wavers by 40 MiB and grows by so much a minute from its start. */
function soaked(seconds: number, growthMib: number): Figures {
  const figures = new Figures();
  const random = new Random(1);
  for (let ageS = 0; ageS < seconds; ageS += LOOK_S) {
    const wave = 12 * Math.sin(ageS / 17) + 8 * Math.sin(ageS / 5);
    const rss = 150 + 100 * Math.min(1, ageS / 150) + wave + 5 * random.next() + (growthMib * ageS) / 60;
    figures.idle.push({ target: 'threads', life: 1, ageS, rssBytes: rss * MIB, heapBytes: 0 });
  }
  figures.checkMemory();
  return figures;
}

test('a process that warms up, wavers and then stays as large as it is keeps the rule', () => {
  for (const seconds of [30, 300, 600, 1800]) assert.deepEqual(soaked(seconds, 0).violations, [], `${seconds} s`);
});

test('a leak breaks the rule; the longer the soak, the smaller the leak that does', () => {
  for (const [seconds, growthMib] of [
    [300, 12],
    [600, 5],
    [1800, 2],
  ] as const) {
    const { violations } = soaked(seconds, growthMib);
    assert.equal(violations.length, 1, `${growthMib} MiB a minute over ${seconds} s`);
    assert.match(violations[0] ?? '', /^memory of threads life 1 grew: \d+ -> \d+ MiB in the last \d+ s/);
  }
});
