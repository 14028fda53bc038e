/** What happens to open connections and streams when the token that opened them is revoked or expires. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import { tokensFolder } from '../../../../config/paths.js';
import { removeRecord } from '../../../../daemon/front/auth/token-records.js';
import { eventually, inTime } from '../../../helpers/eventually.js';
import { call, chat } from '../../../rpc/harness.js';
import { type FakeDaemon, startFakeDaemon } from './fake-daemon.js';

let at: FakeDaemon;
before(async () => {
  at = await startFakeDaemon({ auth: { mode: 'token' } });
});
after(() => at.daemon.stop('the test is over'));

const story = JSON.stringify(call(1, 'chat.completions.create', chat('x', { stream: true })));

/** A WebSocket with a call that is not answered, and how it ended. */
async function openSocket(
  protocols: string[],
  authorization?: string,
): Promise<{ closed: Promise<number>; heard: string[]; ws: WebSocket }> {
  const ws = new WebSocket(at.ws, protocols, authorization === undefined ? {} : { headers: { authorization } });
  const heard: string[] = [];
  ws.on('message', (data: Buffer) => heard.push(data.toString()));
  const closed = new Promise<number>((resolve) => ws.on('close', resolve));
  await new Promise((resolve, reject) => ws.on('open', resolve).on('error', reject));
  ws.send(story);
  return { closed, heard, ws };
}

/** A call over HTTP that is not answered. */
function openStream(token: string, stream: boolean): Promise<number | 'cut'> {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
  const body = JSON.stringify({ messages: [{ role: 'user', content: 'x' }], stream });
  const answer = async () => {
    const response = await fetch(`${at.http}/v1/chat/completions`, { method: 'POST', headers, body });
    await response.text();
    return response.status;
  };
  return answer().catch(() => 'cut');
}

for (const [how, makeEnd] of [
  ['revoked', async (id: string) => void removeRecord(tokensFolder(at.env), id)],
  ['expired', async () => {}],
] as const) {
  test(`a token that was ${how} ends its sockets and streams at once, and no others`, async () => {
    const lasts = how === 'expired' ? Date.now() + 3000 : null;
    const [gone, kept] = [await at.token(['infer'], lasts), await at.token(['infer'])];
    const doomed = [await openSocket(['jsonrpc'], `Bearer ${gone.token}`), await openSocket(['jsonrpc', `bearer.${gone.token}`])];
    const spared = await openSocket(['jsonrpc'], `Bearer ${kept.token}`);
    const answers = [openStream(gone.token, true), openStream(gone.token, false)];
    await eventually('all calls run', () => at.engine.open.size === 5);
    await makeEnd(gone.id);
    for (const { closed } of doomed) assert.equal(await inTime('the socket closes', closed), 1008);
    for (const answer of answers) assert.ok([499, 'cut'].includes(await inTime('the stream ends', answer)));
    await eventually('the engine is free of them', () => at.engine.open.size === 1);
    assert.equal(spared.ws.readyState, spared.ws.OPEN);
    assert.equal((await fetch(`${at.http}/v1/models`, { headers: { authorization: `Bearer ${gone.token}` } })).status, 401);
    at.engine.finishAll();
    await eventually('the other is answered', () => spared.heard.some((text) => text.includes('"result"')));
    spared.ws.close();
    await spared.closed;
  });
}
