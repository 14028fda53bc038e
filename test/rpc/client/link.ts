/** A client whose transport is a connection in memory that tests can cut, delay and spoil. */
import { InferdClient } from '../../../rpc/client/client.js';
import type { Transport, TransportEvents } from '../../../rpc/client/transport.js';
import { RpcConnection } from '../../../rpc/connection.js';
import { allScopes } from '../../../rpc/scope.js';
import type { RpcServer } from '../../../rpc/server.js';
import { wireTo } from '../../helpers/wire/wire.js';

export class Link {
  /** Frames the client sent, parsed. */
  readonly sent: { readonly method?: string; readonly params?: { readonly [key: string]: unknown }; readonly id?: number }[] = [];
  /** Changes, or swallows (null), a frame of the daemon. */
  tamper: (frame: string) => string | null = (frame) => frame;
  events: TransportEvents | null = null;
  readonly #connection: RpcConnection;

  constructor(server: RpcServer) {
    const send = (data: string | Uint8Array): void => {
      const frame = this.tamper(data as string);
      if (frame !== null) setImmediate(() => this.events?.text(frame));
    };
    this.#connection = new RpcConnection(server, wireTo(send), { encoding: 'json', scopes: allScopes });
  }

  readonly open = (events: TransportEvents): Promise<Transport> => {
    this.events = events;
    return Promise.resolve({
      send: (frame: string) => {
        this.sent.push(JSON.parse(frame));
        this.#connection.receive(frame);
      },
      close: () => this.cut('closed by the client'),
    });
  };

  /** The connection breaks. */
  cut(reason: string): void {
    this.#connection.close();
    this.events?.closed(reason);
  }
}

export async function linkedClient(server: RpcServer): Promise<{ client: InferdClient; link: Link }> {
  const link = new Link(server);
  return { client: await InferdClient.open(link.open), link };
}
