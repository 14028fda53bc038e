/** WebSocket connections over real sockets: frames, limits, heartbeat, send buffers, closing. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { wireHighWater } from '../../../rpc/wire.js';
import { eventually } from '../../helpers/eventually.js';
import { rawConnect, rawRequest, readReply, upgradeLines } from '../../helpers/wire/raw-http.js';
import { CountedSlices } from './counted-slices.js';
import { type Front, withFront } from './echo-front.js';

async function open(front: Front, protocols: string | string[] = [], options: object = {}): Promise<WebSocket> {
  const ws = new WebSocket(`ws://127.0.0.1:${front.port}/`, protocols, options);
  ws.on('error', () => {});
  await once(ws, 'open');
  return ws;
}
const closeCode = async (ws: WebSocket): Promise<number> => (await once(ws, 'close'))[0] as number;

test('text goes both ways on jsonrpc and without a subprotocol, bytes on jsonrpc.msgpack', () =>
  withFront({}, async (front) => {
    for (const protocols of [[], ['jsonrpc'], ['jsonrpc', 'bearer.x'], ['foo', 'jsonrpc']]) {
      const ws = await open(front, protocols);
      assert.equal(ws.protocol, protocols.includes('jsonrpc') ? 'jsonrpc' : '');
      ws.send('{"é":1}');
      const [data, isBinary] = (await once(ws, 'message')) as [Buffer, boolean];
      assert.deepEqual([data.toString(), isBinary], ['{"é":1}', false]);
      ws.close();
    }
    const packed = await open(front, 'jsonrpc.msgpack');
    packed.send(Buffer.from([0x80]));
    const [data, isBinary] = (await once(packed, 'message')) as [Buffer, boolean];
    assert.deepEqual([[...data], isBinary], [[0x80], true]);
    assert.equal(front.handlers.at(-1)?.options.encoding, 'msgpack');
    packed.close();
  }));

test('a client that offers only unknown subprotocols is refused before 101', () =>
  withFront({}, async (front) => {
    const reply = await rawRequest(front.port, upgradeLines('/', ['Host: localhost', 'Sec-WebSocket-Protocol: graphql-ws']));
    assert.equal(reply.status, 400);
    assert.match(reply.body, /jsonrpc\.msgpack/);
  }));

test('a handshake that is none is refused before 101, in the shape of every error', () =>
  withFront({}, async (front) => {
    const lines = upgradeLines('/', ['Host: localhost']);
    const without = (name: string) => lines.filter((line) => !line.startsWith(name));
    for (const wrong of [
      without('Sec-WebSocket-Key'),
      without('Sec-WebSocket-Version'),
      [...without('Sec-WebSocket-Version'), 'Sec-WebSocket-Version: 99'],
      [`POST ${lines[0]?.slice('GET '.length)}`, ...lines.slice(1)],
    ]) {
      const { status, headers, body } = await rawRequest(front.port, wrong);
      assert.deepEqual([status, headers.get('sec-websocket-version')], [400, '13']);
      const { error } = JSON.parse(body) as { error: { message: string } };
      assert.match(error.message, /^This is not a WebSocket handshake: .*\.$/);
      assert.deepEqual({ ...error, message: '' }, { message: '', type: 'invalid_request_error', param: null, code: 'bad_request' });
    }
  }));

test('a frame of the wrong kind closes with 1003 and never reaches the handler', () =>
  withFront({}, async (front) => {
    const text = await open(front, 'jsonrpc');
    text.send(Buffer.from('{}'));
    assert.equal(await closeCode(text), 1003);
    const packed = await open(front, 'jsonrpc.msgpack');
    packed.send('{}');
    assert.equal(await closeCode(packed), 1003);
    await Promise.all(front.handlers.map((s) => s.until('close')));
    assert.deepEqual(
      front.handlers.map((s) => s.events),
      [['close'], ['close']],
    );
  }));

test('bad UTF-8 closes with 1007, an oversized message with 1009, whole or in fragments', () =>
  withFront({ config: { server: { max_message_bytes: 2048 } } }, async (front) => {
    const bad = await open(front);
    bad.send(Buffer.from([0x22, 0xc3, 0x28, 0x22]), { binary: false });
    assert.equal(await closeCode(bad), 1007);
    const fits = await open(front);
    fits.send('x'.repeat(2048));
    await once(fits, 'message');
    fits.send('x'.repeat(2049));
    assert.equal(await closeCode(fits), 1009);
    const parts = await open(front);
    for (let i = 0; i < 5; i++) parts.send('x'.repeat(500), { fin: false });
    assert.equal(await closeCode(parts), 1009);
  }));

test('no compression is agreed on', () =>
  withFront({}, async (front) => {
    const ws = await open(front, [], { perMessageDeflate: true });
    assert.equal(ws.extensions, '');
    ws.close();
  }));

test('connections over the limit are refused with 503 until one is closed', () =>
  withFront({ config: { server: { max_connections: 2 } } }, async (front) => {
    const first = await open(front);
    await open(front);
    const third = await rawRequest(front.port, upgradeLines('/', ['Host: localhost']));
    assert.equal(third.status, 503);
    assert.equal((await rawRequest(front.port, ['GET /health HTTP/1.1', 'Host: localhost'])).status, 200, 'probes still answer');
    first.close();
    await front.handlers[0]!.until('close');
    const fourth = await open(front);
    assert.equal(front.sockets.count(), 2);
    fourth.close();
  }));

test('a peer that answers pings stays, one that does not is dropped', () =>
  withFront({ config: { server: { ping_interval_s: 0.1 } } }, async (front) => {
    const good = await open(front);
    const deaf = await open(front, [], { autoPong: false });
    assert.equal(await closeCode(deaf), 1006);
    await front.handlers[1]!.until('close');
    let pings = 0;
    good.on('ping', () => pings++);
    while (pings < 4) await once(good, 'ping');
    assert.equal(good.readyState, good.OPEN);
    good.close();
  }));

test('a peer that takes nothing for long is dropped although pings cannot reach it', () =>
  withFront({ config: { server: { ping_interval_s: 0.1, slow_client_timeout_s: 0.2 } } }, async (front) => {
    const ws = await open(front);
    ws.pause();
    const handler = front.handlers[0]!;
    for (let i = 0; i < 64; i++) handler.wire.send('x'.repeat(1 << 20));
    await handler.until('close');
    ws.terminate();
  }));

test('a peer that sends pings and reads no pongs is dropped before they pile up', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    ws.pause();
    const { wire, events } = front.handlers[0]!;
    let most = 0;
    for (let sent = 0; !events.includes('close') && sent < 2_000_000; sent += 1000) {
      for (let i = 0; i < 1000 && ws.bufferedAmount < 1 << 20; i++) ws.ping('p'.repeat(125));
      await new Promise((resolve) => setTimeout(resolve, 1));
      most = Math.max(most, wire.bufferedBytes());
    }
    await front.handlers[0]!.until('close');
    assert.ok(most < 8 << 20, `${most} bytes of pongs waited`);
    ws.terminate();
  }));

test('a message that never ends costs its connection, dripped in one frame or in fragments with pongs between; slow ones that end do not', () =>
  withFront({ config: { server: { ping_interval_s: 0.1 } }, messageMs: 400 }, async (front) => {
    const fragments = await open(front);
    fragments.send('x', { fin: false });
    const drip = setInterval(() => fragments.send('x', { fin: false }), 30);
    const raw = rawConnect(front.port);
    raw.write(`${upgradeLines('/', ['Host: localhost']).join('\r\n')}\r\n\r\n`);
    assert.equal((await readReply(raw)).status, 101);
    raw.resume().write(Buffer.from('81fe7fff00000000', 'hex'));
    const byteDrip = setInterval(() => raw.write('x'), 30);
    const patient = await open(front);
    const ping = setInterval(() => {
      patient.ping('p'.repeat(125));
      patient.send('y', { fin: false });
      patient.send('z');
    }, 50);
    assert.equal(await closeCode(fragments), 1006);
    if (!raw.destroyed) await once(raw, 'close');
    clearInterval(drip);
    clearInterval(byteDrip);
    clearInterval(ping);
    assert.equal(patient.readyState, patient.OPEN);
    patient.close();
  }));

test('a message in more fragments, or more reads, than any client needs closes with 1008', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    for (let i = 0; i < 5000; i++) ws.send('', { fin: false });
    assert.equal(await closeCode(ws), 1008);
    await front.handlers[0]!.until('close');
    assert.deepEqual(front.handlers[0]!.events, ['close']);
  }));

test('a compressed frame was not agreed on and closes with 1002', () =>
  withFront({}, async (front) => {
    const socket = rawConnect(front.port);
    const offer = ['Host: localhost', 'Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover'];
    socket.write(`${upgradeLines('/', offer).join('\r\n')}\r\n\r\n`);
    const reply = await readReply(socket);
    assert.equal(reply.status, 101);
    assert.equal(reply.headers.has('sec-websocket-extensions'), false);
    const answer = new Promise<Buffer>((resolve) => socket.once('data', resolve));
    // 200 MB of zeros would fit in what such a frame may hold.
    socket.write(Buffer.from('c18500000000aa56050000', 'hex'));
    assert.equal((await answer).readUInt16BE(2), 1002);
    socket.end();
    await front.handlers[0]!.until('close');
    assert.deepEqual(front.handlers[0]!.events, ['close']);
    socket.destroy();
  }));

test('the send buffer is counted while a reader stalls, and writable comes when it has drained', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    ws.pause();
    const handler = front.handlers[0]!;
    const message = 'y'.repeat(1 << 20);
    const count = 24;
    for (let i = 0; i < count; i++) handler.wire.send(message);
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.ok(handler.wire.bufferedBytes() > 1 << 20, 'the kernel cannot hold it all');
    assert.equal(handler.events.includes('writable'), false);
    let received = 0;
    const all = new Promise<void>((resolve) => {
      ws.on('message', (data) => {
        assert.equal((data as Buffer).length, message.length);
        if (++received === count) resolve();
      });
    });
    ws.resume();
    await Promise.all([all, handler.until('writable')]);
    assert.equal(handler.wire.bufferedBytes(), 0);
    ws.close();
  }));

test('a handler that saw a full buffer hears when it is empty, also when the kernel took all of it at once', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    const handler = front.handlers[0]!;
    handler.wire.send('y'.repeat(1.25 * 2 ** 20));
    assert.ok(handler.wire.bufferedBytes() > wireHighWater);
    await Promise.all([once(ws, 'message'), handler.until('writable')]);
    ws.close();
  }));

test('a handler can stop the reading of its socket and go on later', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    const handler = front.handlers[0]!;
    handler.wire.setReading?.(false);
    await new Promise((resolve) => setImmediate(resolve));
    ws.send('later');
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.deepEqual(handler.events, []);
    handler.wire.setReading?.(true);
    await handler.until('text');
    ws.close();
  }));

test('messages sent in one turn leave in one write', () =>
  withFront(
    {
      onReceive() {},
    },
    async (front) => {
      const socket = rawConnect(front.port);
      socket.write(`${upgradeLines('/', ['Host: localhost']).join('\r\n')}\r\n\r\n`);
      assert.equal((await readReply(socket)).status, 101);
      const handler = front.handlers[0]!;
      const parts: number[] = [];
      socket.on('data', (part) => parts.push(part.length));
      for (let i = 0; i < 10; i++) handler.wire.send('z'.repeat(50));
      while (parts.reduce((a, b) => a + b, 0) < 520) await once(socket, 'data');
      assert.equal(parts.length, 1);
      socket.destroy();
    },
  ));

const slice = (i: number) => `${i} 🦊 ${'x'.repeat(60_000)}\n`;

test('a message in slices arrives as one, text or bytes, of one slice or many', () =>
  withFront({}, async (front) => {
    for (const protocol of ['jsonrpc', 'jsonrpc.msgpack']) {
      const ws = await open(front, protocol);
      const { wire } = front.handlers.at(-1)!; // just opened
      for (const count of [1, 2, 300]) {
        const slices = new CountedSlices(count, protocol === 'jsonrpc' ? slice : (i) => Buffer.from(slice(i)));
        const sent = new Promise<void>((resolve) => wire.sendSlices(slices, resolve));
        const [data, isBinary] = (await once(ws, 'message')) as [Buffer, boolean];
        assert.ok(data.equals(Buffer.from(protocol === 'jsonrpc' ? slices.text : Buffer.concat(all(count)))));
        assert.equal(isBinary, protocol !== 'jsonrpc');
        await sent;
        assert.equal(slices.closed, 1);
      }
      ws.close();
    }
    function all(count: number): Buffer[] {
      return Array.from({ length: count }, (_, i) => Buffer.from(slice(i)));
    }
  }));

test('slices are made as the client takes them, pings pass between them, and others are served', () =>
  withFront({ config: { server: { ping_interval_s: 0.1 } } }, async (front) => {
    const ws = await open(front);
    const other = await open(front);
    const slices = new CountedSlices(800, slice);
    const [handler] = front.handlers;
    ws.pause();
    let done = false;
    handler?.wire.sendSlices(slices, () => {
      done = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 300));
    const made = slices.made;
    assert.ok(made > 1 && made < 400, `${made} of 800 slices were made for a client that takes none`);
    assert.ok((handler?.wire.bufferedBytes() ?? 0) < 1 << 20);
    other.send('hello');
    assert.equal(String((await once(other, 'message'))[0]), 'hello');
    assert.ok(!done);
    let pings = 0;
    ws.on('ping', () => pings++);
    const message = once(ws, 'message');
    while (slices.made < 800) {
      ws.resume();
      await new Promise((resolve) => setTimeout(resolve, 20));
      ws.pause();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    ws.resume();
    assert.equal(((await message) as [Buffer])[0].toString(), slices.text);
    assert.equal(slices.closed, 1);
    await eventually('the end is told', () => done);
    ws.close();
    other.close();
  }));

test('a client that leaves, or takes nothing of a message for long, stops the making of its slices', () =>
  withFront({ config: { server: { ping_interval_s: 0.1, slow_client_timeout_s: 0.2 } } }, async (front) => {
    for (const leaves of [true, false]) {
      const ws = await open(front);
      const handler = front.handlers.at(-1)!; // just opened
      ws.pause();
      const slices = new CountedSlices(100_000, slice);
      let done = 0;
      handler.wire.sendSlices(slices, () => done++);
      await eventually('some slices are made', () => slices.made > 1);
      if (leaves) ws.terminate();
      await handler.until('close');
      const { made } = slices;
      await new Promise((resolve) => setTimeout(resolve, 50));
      assert.deepEqual([slices.closed, done, slices.made], [1, 1, made]);
      ws.terminate();
      const late = new CountedSlices(3, slice);
      handler.wire.sendSlices(late, () => done++);
      assert.deepEqual([late.made, late.closed, done], [0, 1, 2], 'for a closed socket nothing is made');
    }
  }));

test('a client that closes in the middle of a message in slices is not made the rest', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    const slices = new CountedSlices(100_000, slice);
    let done = 0;
    front.handlers[0]!.wire.sendSlices(slices, () => done++);
    await eventually('some slices are made', () => slices.made > 5);
    ws.close();
    await front.handlers[0]!.until('close');
    assert.deepEqual([slices.closed, done], [1, 1]);
    assert.ok(slices.made < 90_000, `${slices.made} slices`);
  }));

test('a slice that cannot be made costs its connection, not the daemon', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    const slices = new CountedSlices(5, (i) => {
      if (i === 3) throw new Error('a bug');
      return slice(i);
    });
    let done = 0;
    front.handlers[0]!.wire.sendSlices(slices, () => done++);
    assert.equal(await closeCode(ws), 1011);
    assert.deepEqual([slices.closed, done], [1, 1]);
    assert.equal((await rawRequest(front.port, ['GET /health HTTP/1.1', 'Host: localhost'])).status, 200);
  }));

test('closing all waits for the end of a message in slices', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    const handler = front.handlers[0]!;
    const slices = new CountedSlices(200, slice);
    handler.pending = 1;
    handler.wire.sendSlices(slices, () => {
      handler.pending = 0;
    });
    const message = once(ws, 'message') as Promise<[Buffer]>;
    const code = closeCode(ws);
    await front.sockets.closeAll(10_000);
    assert.equal(await code, 1001);
    assert.equal((await message)[0].toString(), slices.text);
  }));

test('a handler that throws costs its connection, not the daemon', () =>
  withFront(
    {
      onReceive() {
        throw new Error('a bug');
      },
    },
    async (front) => {
      const ws = await open(front);
      ws.send('{}');
      assert.equal(await closeCode(ws), 1011);
      assert.equal((await rawRequest(front.port, ['GET /health HTTP/1.1', 'Host: localhost'])).status, 200);
    },
  ));

test('a message for which there is no memory costs its connection, not the daemon', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    const closed = closeCode(ws);
    front.handlers[0]!.wire.send({ byteLength: 2 ** 52 } as Uint8Array);
    assert.equal(await closed, 1011);
    assert.equal((await rawRequest(front.port, ['GET /health HTTP/1.1', 'Host: localhost'])).status, 200);
  }));

test('closing all sends what is buffered first, then 1001', () =>
  withFront({}, async (front) => {
    const ws = await open(front);
    const handler = front.handlers[0]!;
    const seen: string[] = [];
    ws.on('message', (data) => seen.push((data as Buffer).toString()));
    front.sockets.announceShutdown();
    for (let i = 0; i < 100; i++) handler.wire.send(String(i));
    const code = closeCode(ws);
    await front.sockets.closeAll(2000);
    assert.equal(await code, 1001);
    assert.deepEqual(
      seen,
      Array.from({ length: 100 }, (_, i) => String(i)),
    );
    assert.deepEqual(handler.events, ['shutdown', 'close']);
    handler.wire.send('after the end');
    assert.equal(front.sockets.count(), 0);
  }));

test('a peer that ignores the close frame is cut off in time', () =>
  withFront({}, async (front) => {
    const socket = rawConnect(front.port);
    socket.write(`${upgradeLines('/', ['Host: localhost']).join('\r\n')}\r\n\r\n`);
    await readReply(socket);
    const gone = once(socket, 'close');
    await front.sockets.closeAll(200);
    socket.resume();
    await gone;
    assert.equal(front.sockets.count(), 0);
  }));
