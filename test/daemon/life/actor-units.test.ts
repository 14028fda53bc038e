/** Lives of units on real threads, with a fake model. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createQueueRoom } from '../../../actors/routing/queue-room.js';
import { silentLog } from '../../../actors/runtime/log.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { EngineGroup } from '../../../daemon/life/actor-units.js';
import { createPools } from '../../../daemon/life/pools.js';
import { topologyOf } from '../../../daemon/life/topology.js';
import { fakeNativeEngineModule } from '../../helpers/engine/fake-native-engine.js';

const ends = {
  killed: (unit: EngineGroup) => unit.port?.executors[0]?.kill(),
  'stopped because its scheduler was killed': (unit: EngineGroup) => unit.port?.scheduler.kill(),
  'told to stop': () => {},
};
for (const [how, end] of Object.entries(ends)) {
  test(`an actor that was ${how} has a fresh thread in its next life`, async () => {
    const { config } = loadConfig({ env: {} });
    const model = resolveModelFolder(config, {});
    const pools = createPools(silentLog);
    const topology = topologyOf(config, model, { executorModule: fakeNativeEngineModule({ vocab: model.vocabSize }) });
    const unit = new EngineGroup(
      topology,
      { pools, log: silentLog, onProgress() {} },
      { index: 0, room: createQueueRoom(1, 1), loading: () => 0 },
    );
    const threads = new Set<string | undefined>();
    for (let i = 0; i < 3; i++) {
      const life = unit.start();
      assert.equal(await life.ready, null);
      threads.add(unit.port?.capacity.architecture); // names the thread, in this fake
      end(unit);
      assert.equal(await life.stop(3000), true);
    }
    assert.equal(threads.size, 3, [...threads].join(', '));
    await pools.close();
  });
}
