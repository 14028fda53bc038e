/**
 * A connection without a socket: the client and the protocol in one process, frames handed over as texts. So the library has the same
 * checks, answers, streams and flow control as every other door, and no second copy of them. Main thread.
 *
 *   InferdClient --send--> RpcConnection --answers--> LocalWire --text, in a later microtask--> InferdClient
 *
 * What the client has not taken of a stream is bounded by its credit, so nothing waits here but answers that are being put together.
 */
import type { OpenTransport, TransportEvents } from '../../rpc/client/transport.js';
import { RpcConnection } from '../../rpc/connection.js';
import { allScopes } from '../../rpc/scope.js';
import type { RpcServer } from '../../rpc/server.js';
import type { Slices } from '../../rpc/slices.js';
import type { Wire } from '../../rpc/wire.js';
import { SlicePump } from '../front/slice-pump.js';
import type { KeepAlive } from './keep-alive.js';

/** For InferdClient.open. While a call has no answer the process is kept alive. */
export function localTransport(server: RpcServer, alive: KeepAlive): OpenTransport {
  return async (events) => {
    const wire = new LocalWire(events);
    const connection = new RpcConnection(server, wire, { encoding: 'json', scopes: allScopes });
    const look = (): void => alive.hold(connection.pending > 0);
    const end = (reason: string): void => {
      if (wire.closed) return;
      wire.closed = true;
      connection.close();
      look();
      events.closed(reason);
    };
    wire.onSend = look;
    wire.onFailure = () => end('An answer could not be put together');
    return {
      send(frame) {
        connection.receive(frame);
        look();
      },
      close: () => end('The engine was closed'),
    };
  };
}

class LocalWire implements Wire {
  closed = false;
  onSend: () => void = () => {};
  onFailure: () => void = () => {};
  readonly #events: TransportEvents;

  constructor(events: TransportEvents) {
    this.#events = events;
  }

  send(frame: string | Uint8Array): void {
    this.onSend();
    // Later: whoever sends is in the middle of something, and what the client does with it may be another call.
    queueMicrotask(() => {
      if (!this.closed) this.#events.text(String(frame)); // proof: the encoding is json
    });
  }

  sendSlices(slices: Slices, done: () => void): void {
    const parts: string[] = [];
    const pump = new SlicePump(slices, {
      write: (slice) => {
        if (this.closed) pump.stop();
        else parts.push(String(slice)); // proof: as above
        return !this.closed;
      },
      done: (error) => {
        if (error === null) this.send(parts.join(''));
        else this.onFailure();
        done();
      },
    });
  }

  bufferedBytes(): number {
    return 0;
  }
}
