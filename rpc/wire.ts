/**
 * The way out of one WebSocket, as rpc sees it. Implemented by daemon/front/websocket.ts and by tests; used on the main thread only.
 */
import type { Slices } from './slices.js';

export interface Wire {
  /** Sends one frame: a string as text, bytes, which it copies, as binary. Never blocks; what the socket cannot take yet is buffered. */
  send(data: string | Uint8Array): void;
  /**
   * Sends one message made of all slices, each when there is room for it, and closes them; `send` may not be called before `done`. When
   * the socket closes before the end the rest is not made.
   */
  sendSlices(slices: Slices, done: () => void): void;
  /** Bytes that wait in that buffer. */
  bufferedBytes(): number;
  /**
   * Optional: stop or go on reading from the socket. Asked for when a client sends calls but does not read the answers, because
   * answers, unlike stream events, cannot be held back.
   */
  setReading?(on: boolean): void;
}

/** Above this many buffered bytes nothing that can wait is sent. */
export const wireHighWater = 2 ** 20;
