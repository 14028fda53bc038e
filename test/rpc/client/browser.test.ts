/** The browser client, against a WebSocket class of a page. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ConnectError, connect } from '../../../rpc/client/browser.js';
import { RpcConnection } from '../../../rpc/connection.js';
import { allScopes } from '../../../rpc/scope.js';
import { wireTo } from '../../helpers/wire/wire.js';
import { setup } from '../harness.js';

/** What a page's WebSocket shows of itself, with a daemon behind it. */
function pageSocket(fails: boolean) {
  const { server } = setup();
  return class {
    static last: { url: string; protocols: readonly string[] } | null = null;
    onopen: () => void = () => {};
    onerror: () => void = () => {};
    onmessage: (event: { data: unknown }) => void = () => {};
    onclose: (event: { reason: string }) => void = () => {};
    readonly #connection: RpcConnection;
    constructor(url: string, protocols: readonly string[]) {
      (this.constructor as unknown as { last: object }).last = { url, protocols };
      const send = (data: string | Uint8Array): void => void setImmediate(() => this.onmessage({ data }));
      this.#connection = new RpcConnection(server, wireTo(send), { encoding: 'json', scopes: allScopes });
      setImmediate(() => (fails ? this.onerror() : this.onopen()));
    }
    send(frame: string): void {
      this.#connection.receive(frame);
    }
    close(): void {
      this.#connection.close();
      setImmediate(() => this.onclose({ reason: '' }));
    }
  };
}

async function inPage<T>(socket: object, page: object | undefined, run: () => Promise<T>): Promise<T> {
  const world = globalThis as unknown as { WebSocket: unknown; location: unknown };
  const { WebSocket: socketBefore, location: pageBefore } = world;
  Object.assign(world, { WebSocket: socket, location: page });
  try {
    return await run();
  } finally {
    Object.assign(world, { WebSocket: socketBefore, location: pageBefore });
  }
}

describe('the browser client', () => {
  test('connects to the page’s origin, shows the token as a subprotocol, and streams', async () => {
    const socket = pageSocket(false);
    await inPage(socket, { origin: 'http://127.0.0.1:8765' }, async () => {
      const client = await connect({ token: 'secret' });
      assert.deepEqual(socket.last, { url: 'ws://127.0.0.1:8765', protocols: ['jsonrpc', 'bearer.secret'] });
      let text = '';
      const stream = await client.chat.completions.create({ messages: [{ role: 'user', content: 'x' }], stream: true });
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      assert.equal(text, 'You said: x');
      await client.close();
    });
  });

  test('asks for an address where there is no page', async () => {
    await inPage(pageSocket(false), undefined, () => assert.rejects(connect(), ConnectError));
  });

  test('says so when the connection fails', async () => {
    await inPage(pageSocket(true), undefined, () => assert.rejects(connect({ url: 'ws://127.0.0.1:1' }), ConnectError));
  });

  test('loads nothing but its own files and json-rpc-2.0', () => {
    const folder = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..', 'rpc', 'client');
    const own = readdirSync(folder).filter((f) => f.endsWith('.js') && f !== 'node.js');
    const signature = readdirSync(join(folder, '..', 'signature')).filter((f) => f.endsWith('.js'));
    for (const name of [...own, ...signature.map((f) => join('..', 'signature', f))]) {
      const imports = [...readFileSync(join(folder, name), 'utf8').matchAll(/from\s+'([^']+)'/g)].map((m) => m[1] ?? '');
      assert.deepEqual(
        imports.filter((i) => !i.startsWith('./') && !i.startsWith('../signature/') && i !== 'json-rpc-2.0'),
        [],
        name,
      );
    }
  });
});
