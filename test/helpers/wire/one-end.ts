/** What streams get when the engine below them ends. */
import assert from 'node:assert/strict';
import { addUp, type RpcSocket } from './rpc-socket.js';

/** One response each: the whole answer, of a request that a restart has taken along, or a failure that says it may be tried again. */
export async function assertOneEndEach(socket: RpcSocket, ids: readonly (number | string)[]): Promise<void> {
  for (const id of ids) {
    const { error, result } = await socket.reply(id);
    if (error === undefined) assert.equal(addUp(socket.events(id), 1).tokenIds[0]?.length, result?.usage?.completion_tokens);
    else assert.deepEqual([error.code, error.data?.['retriable']], [-32012, true]);
  }
  assert.equal(socket.log.filter((m) => m.id !== undefined && ids.includes(m.id as number)).length, ids.length, 'one response each');
}
