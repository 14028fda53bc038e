/** The JSON-RPC vectors through a live WebSocket of a daemon that serves the embedded model, a connection for each case. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { WebSocket } from 'ws';
import { startTestDaemon, type TestDaemon } from '../helpers/daemon/daemon.js';
import { liveVectorFiles, loadVectors, playVector, type VectorPeer } from '../rpc/vectors.js';

/** A frame that does not come within this fails its case; far above what any case needs. */
const NEXT_LIMIT_MS = 20_000;

let at: TestDaemon;
before(async () => {
  at = await startTestDaemon();
});
after(() => at.close());

/** Frames of one connection, in order. */
async function livePeer(): Promise<VectorPeer & { close(): void }> {
  const ws = new WebSocket(at.ws, 'jsonrpc');
  const frames: unknown[] = [];
  let wake: () => void = () => {};
  ws.on('message', (data: Buffer) => {
    frames.push(JSON.parse(data.toString('utf8')));
    wake();
  });
  ws.on('close', () => wake());
  await once(ws, 'open');
  return {
    send: (frame) => ws.send(frame, { binary: false }),
    async next() {
      while (frames.length === 0) {
        assert.equal(ws.readyState, ws.OPEN, 'the connection closed before the frame came');
        const late = setTimeout(() => ws.terminate(), NEXT_LIMIT_MS);
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        clearTimeout(late);
      }
      return frames.shift();
    },
    close: () => ws.terminate(),
  };
}

for (const file of liveVectorFiles) {
  test(`the cases of ${file}`, async () => {
    for (const vector of loadVectors(file)) {
      const peer = await livePeer();
      try {
        await playVector(vector, peer);
      } finally {
        peer.close();
      }
    }
  });
}

test('after all of them the daemon holds nothing and is healthy', async () => {
  await at.untilFreed();
  assert.equal((await fetch(`${at.http}/health`)).status, 200);
});
