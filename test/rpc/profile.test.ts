/** profile.start and profile.stop at the protocol's border: scope, draining, shapes, and the HTTP routes of their own. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InferdError } from '../../actors/messages/errors.js';
import { type Profiler, type ProfileStopped, profileStoppedSchema } from '../../rpc/schemas/profile.js';
import { at, call, connectPeer, guest, setup } from './harness.js';

const stopped: ProfileStopped = {
  status: 'written',
  files: ['/profiles/tp0/a.trace.json.gz'],
  ended_by: 'asked',
  summary: [
    {
      rank: 0,
      device: { source: 'cupti', note: '' },
      events: { scheduler: 1, executor: 2, device: 3 },
      dropped: { scheduler: 0, executor: 0, device: 0 },
      steps: 3,
      decode_steps: 2,
      busy_ms: 7.9,
      idle_ms: 0.1,
      idle_share: 0.0125,
      median_step_ms: 4,
      median_period_ms: null,
    },
  ],
};
const working: Profiler = { start: async () => ({ status: 'recording', files: [] }), stop: async () => stopped };

test('both doors give the result of one method', async () => {
  const { server } = setup({ profiler: working });
  const peer = connectPeer(server);
  peer.say(call(1, 'profile.start'));
  peer.say(call(2, 'profile.stop', {}));
  const frames = await peer.hear();
  assert.deepEqual(at(frames[0], 'result'), { status: 'recording', files: [] });
  assert.deepEqual(profileStoppedSchema.parse(at(frames[1], 'result')), stopped);
  assert.deepEqual(await server.handleCall('profile.stop'), { status: 200, body: JSON.stringify(stopped) });
});

test('only a caller with admin scope may record', async () => {
  const { server } = setup({ profiler: working });
  const peer = connectPeer(server, guest);
  for (const method of ['profile.start', 'profile.stop'] as const) {
    peer.say(call(1, method));
    assert.equal(at((await peer.hear())[0], 'error', 'code'), -32001);
    const { status, body } = await server.handleCall(method, guest);
    assert.equal(status, 403);
    assert.deepEqual(at(JSON.parse(body ?? ''), 'error', 'type'), 'permission_error');
    assert.deepEqual(at(JSON.parse(body ?? ''), 'error', 'code'), 'insufficient_scope');
  }
});

test('a daemon that drains starts no profile but ends one', async () => {
  const { server } = setup({ profiler: working });
  server.shutdown();
  assert.equal((await server.handleCall('profile.start')).status, 503);
  assert.equal((await server.handleCall('profile.stop')).status, 200);
});

test('failures have the status of the table, and a bug tells nothing of itself', async () => {
  const failing = (error: Error): Profiler => ({ start: () => Promise.reject(error), stop: () => Promise.reject(error) });
  const refused = setup({ profiler: failing(new InferdError('request_failed', 'No profile is being recorded')) }).server;
  const { status, body } = await refused.handleCall('profile.stop');
  assert.equal(status, 409);
  assert.deepEqual(JSON.parse(body ?? ''), {
    error: { message: 'No profile is being recorded', type: 'invalid_request_error', param: null, code: 'request_failed' },
  });
  const broken = await setup({ profiler: failing(new Error('/secret/path')) }).server.handleCall('profile.stop');
  assert.equal(broken.status, 500);
  assert.ok(!(broken.body ?? 'secret').includes('secret'));
});
