/** Actors are killed while eight requests run: each ends with the text it would have had, or with -32012 and "retriable". */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { addUp, type RpcSocket } from '../helpers/wire/rpc-socket.js';
import { story } from './story.js';

let at: TestDaemon;
before(async () => {
  at = await startTestDaemon(['inference.num_tokenizer_workers=2']);
});
after(() => at.close());

const params = (i: number) => story(i, 120);
const indices = Array.from({ length: 8 }, (_, i) => i);

async function undisturbed(socket: RpcSocket): Promise<(readonly number[] | undefined)[]> {
  const answers = await Promise.all(indices.map((i) => socket.call('chat.completions.create', params(i))));
  return answers.map((a) => a.choices?.[0]?.token_ids);
}

for (const [kind, index] of [
  ['scheduler', 0],
  ['executor', 0],
  ['tokenizer', 1],
] as const) {
  test(`killing a ${kind} loses no request silently`, async () => {
    const socket = await at.open();
    const expected = await undisturbed(socket);
    const ids = indices.map((i) => socket.send('chat.completions.create', { ...params(i), stream: true }));
    for (const id of ids) await socket.event(id, 'delta');
    assert.equal(
      ids.some((id) => socket.log.some((m) => m.id === id)),
      false,
      'all eight are still running',
    );
    at.mayFail();
    at.daemon.engine.killActor(kind, index);
    let resumed = 0;
    for (const [i, id] of ids.entries()) {
      const reply = await socket.reply(id);
      const sum = addUp(socket.events(id), 1);
      if (reply.error === undefined) {
        assert.deepEqual(sum.tokenIds[0], expected[i], `request ${i} went on with other tokens`);
        resumed++;
      } else {
        assert.equal(reply.error.code, -32012);
        assert.equal(reply.error.data?.['retriable'], true);
        assert.deepEqual(sum.tokenIds[0], expected[i]?.slice(0, sum.tokenIds[0]?.length), 'what was sent was right');
      }
    }
    assert.equal(socket.log.filter((m) => m.id !== undefined && ids.includes(m.id as number)).length, ids.length, 'one response each');
    if (kind !== 'tokenizer') assert.equal(resumed, ids.length, 'a restart of the engine is not seen by clients');
    else assert.ok(resumed < ids.length, 'the killed tokenizer had some of them');
    assert.deepEqual(await undisturbed(socket), expected, 'afterwards all works as before');
    await at.untilFreed();
    assert.equal((await fetch(`${at.http}/health`)).status, 200);
    await socket.close();
  });
}
