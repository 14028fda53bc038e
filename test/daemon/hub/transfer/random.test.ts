/** Whatever the network and the hub do, in whatever order: the files are right in the end, or the pull ends with a reason. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { findSnapshot } from '../../../../config/models/hub-cache.js';
import { PullError } from '../../../../daemon/hub/error.js';
import { pullFrom } from '../../../helpers/hub/pull.js';
import { type Fault, startHub } from '../../../helpers/hub/stand-in.js';
import { tempFolder } from '../../../helpers/temp-folder.js';

const fault: fc.Arbitrary<Fault | null> = fc.oneof(
  { weight: 6, arbitrary: fc.constant(null) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('drop' as const), after: fc.nat(100_000) }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Fault>({ kind: 'status', status: 503 }, { kind: 'status', status: 403 }, { kind: 'ignore range' }),
  },
  { weight: 1, arbitrary: fc.constant<Fault>({ kind: 'status', status: 429, headers: { 'retry-after': '0.01' } }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('excess' as const), bytes: fc.integer({ min: 1, max: 100_000 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('flip' as const), at: fc.nat(300_000) }) },
);

test('pulls that are cut by faults of every kind, and stopped and begun again, give the right files', async () => {
  const shape = fc.record({
    sizes: fc.array(fc.integer({ min: 0, max: 400_000 }), { minLength: 1, maxLength: 3 }),
    faults: fc.array(fault, { maxLength: 12 }),
    connections: fc.integer({ min: 1, max: 6 }),
    stopAt: fc.option(fc.nat(400_000), { nil: null }),
  });
  await fc.assert(
    fc.asyncProperty(shape, async ({ sizes, faults, connections, stopAt }) => {
      const files = Object.fromEntries(sizes.map((size, i) => [`model-${i}.safetensors`, randomBytes(size)]));
      const left = [...faults];
      const hub = await startHub({ files, fault: ({ number }) => (number < 0 ? null : (left.shift() ?? null)) });
      const cache = tempFolder();
      const limits = { max_connections: connections, max_retries: 8 };
      try {
        const stop = new AbortController();
        const onEvent = ({ kind, ...event }: { kind: string; allBytes?: number }): void => {
          if (kind === 'progress' && stopAt !== null && (event.allBytes ?? 0) > stopAt) stop.abort();
        };
        await pullFrom(hub.url, cache, { limits, signal: stop.signal, onEvent }).catch((error: unknown) => {
          // A byte that is flipped twice, or faults of one connection in a row, may end it: with a reason, and only then.
          assert.ok(error instanceof PullError, String(error));
          assert.ok(['cancelled', 'bad_data', 'refused', 'network'].includes(error.reason), error.message);
        });
        left.length = 0;
        await pullFrom(hub.url, cache, { limits });
        const snapshot = findSnapshot(cache, 'org/model', 'main') ?? '';
        for (const [name, content] of Object.entries(files)) assert.ok(readFileSync(join(snapshot, name)).equals(content), name);
      } finally {
        await hub.close();
      }
    }),
    { numRuns: 25 },
  );
});
