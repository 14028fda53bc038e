/** What the front counts, over real sockets. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually } from '../../helpers/eventually.js';
import { rawConnect, rawRequest } from '../../helpers/wire/raw-http.js';
import { withFront } from './echo-front.js';

test('answers count by route, method and class of status; what a client names freely does not become a label', () =>
  withFront({}, async (front) => {
    const ask = (line: string) => rawRequest(front.port, [`${line} HTTP/1.1`, 'Host: localhost', 'Connection: close']);
    for (const line of ['GET /version', 'GET /version?x=1', 'HEAD /version', 'PUT /rpc', 'GET /a', 'GET /b', 'PURGE /c', 'GET /metrics']) {
      await ask(line);
    }
    await eventually('all are counted', () => front.traffic.answers.reduce((sum, one) => sum + one.count, 0) === 8);
    assert.deepEqual(
      front.traffic.answers.map((one) => Object.values(one).join(' ')),
      ['/version GET 2xx 2', '/version HEAD 2xx 1', '/rpc other 4xx 1', 'none GET 4xx 2', 'none other 4xx 1', '/metrics GET 2xx 1'],
    );
  }));

test('open connections are counted while they are open', () =>
  withFront({}, async (front) => {
    assert.equal(front.traffic.connections, 0);
    const sockets = [await rawConnect(front.port), await rawConnect(front.port)];
    await eventually('both are open', () => front.traffic.connections === 2);
    for (const socket of sockets) socket.destroy();
    await eventually('both are gone', () => front.traffic.connections === 0);
  }));
