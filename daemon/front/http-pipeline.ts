/**
 * The unanswered requests of each HTTP connection. A client may send the next request before the last one is answered (pipelining). Node
 * hands out each as soon as it was read, however many they are, and when the connection closes it tells only the response whose turn it
 * is. So they are counted here, and all are told. Used by http.ts on the main thread.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export class Pipelines {
  readonly #limit: number;
  readonly #unanswered = new WeakMap<Socket, Set<ServerResponse>>();

  /** `limit`: unanswered requests of one connection, at most. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Notes a request until it is answered; its response emits `close` then, or when the connection is gone. False: it is one more than
   * its connection may have, and has to be refused.
   */
  add({ socket }: IncomingMessage, response: ServerResponse): boolean {
    const unanswered = this.#unanswered.get(socket) ?? this.#open(socket);
    unanswered.add(response);
    response.once('close', () => unanswered.delete(response));
    return unanswered.size <= this.#limit;
  }

  #open(socket: Socket): Set<ServerResponse> {
    const unanswered = new Set<ServerResponse>();
    this.#unanswered.set(socket, unanswered);
    socket.once('close', () => {
      for (const response of unanswered) {
        if (response.socket !== null) continue; // its turn: Node tells it
        response.destroy();
        response.emit('close');
      }
    });
    return unanswered;
  }
}
