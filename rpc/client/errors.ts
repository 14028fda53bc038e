/** What a call of the client can reject with, besides an AbortError. */

/** The daemon answered with an error; codes are those of the protocol, -32800 for example is a cancelled call. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;
  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.name = 'RpcError';
    this.code = code;
    this.data = data;
  }
}

/** There is no daemon, or it did not let us in. The message says what to do. */
export class ConnectError extends Error {
  override readonly name = 'ConnectError';
}

/** The connection ended before the answer came. */
export class ConnectionClosedError extends Error {
  override readonly name = 'ConnectionClosedError';
}

/** The daemon sent something that the protocol does not allow. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
}
