/** The way to a daemon, as the client core sees it. Node and the browser each bring one. */

export interface TransportEvents {
  /** One whole text frame. */
  text(frame: string): void;
  /** The connection is over; called once. */
  closed(reason: string): void;
}

export interface Transport {
  /** @throws when the connection is not open */
  send(frame: string): void;
  /** Starts the closing handshake; `closed` follows. */
  close(): void;
}

/** Opens a connection. Rejects with a ConnectError when it cannot. No event comes before the promise resolves. */
export type OpenTransport = (events: TransportEvents) => Promise<Transport>;
