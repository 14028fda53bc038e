/**
 * Reads what a client sends on a WebSocket (RFC 6455, 5): messages are put together here, as their bytes arrive; all else is handed on as it
 * came, to ws, which answers pings and closes and ends connections that break the rules. Used by websocket.ts.
 *
 * Why not by ws: it keeps a frame until its last byte has come and then copies and unmasks it in one go, 225 ms of the main thread for 60 MB,
 * and checks and copies the message once more. Here each read of the socket is unmasked by itself, in some microseconds, and a large message
 * stays in pieces that another thread can take without a copy. Bytes are taken as they come: nothing is set aside for a length that was
 * only announced.
 */
import { Buffer } from 'node:buffer';
import { Arriving } from '../../rpc/decode/arriving.js';
import type { Ahead, Pieces } from '../../rpc/decode/pieces.js';

export type Incoming =
  /** A whole message; `pieces` are the reader's no longer. A small one has one piece. */
  | { readonly kind: 'message'; readonly text: boolean; readonly pieces: Pieces; readonly bytes: number }
  /** Not of a message, or the begin of something that ws refuses. */
  | { readonly kind: 'other'; readonly bytes: Buffer }
  /** The message can not go on. `code`: of the close frame. */
  | { readonly kind: 'broken'; readonly code: number; readonly reason: string };

export interface MessageLimits {
  /** Of one message. */
  readonly maxBytes: number;
  /** Frames of one message. */
  readonly maxFragments: number;
  /** Reads of the socket that one message may take, besides one for each READ_BYTES of it: each costs more than such few bytes. */
  readonly maxReads: number;
}

const FINAL = 0x80;
const RESERVED = 0x70;
const OPCODE = 0x0f;
const CONTINUATION = 0;
const TEXT = 1;
const BINARY = 2;
const FIRST_CONTROL = 8;
const MASKED = 0x80;
const LENGTH = 0x7f;
const LENGTH_16 = 126;
const LENGTH_64 = 127;
const MASK_BYTES = 4;
const HIGH_WORD = 2 ** 32;

const PROTOCOL_ERROR = 1002;
const POLICY_VIOLATION = 1008;
const TOO_LARGE = 1009;

/** A read with so much of a message is a piece of it; shorter ones are put together to pieces of the second size. */
const LONG_READ_BYTES = 2 ** 14;
const PIECE_BYTES = 2 ** 16;
const READ_BYTES = 512;
/** Below this, a loop over bytes is quicker than one over words. */
const FEW_BYTES = 64;

const nothing = Buffer.alloc(0);
const tooManyReads: Incoming = { kind: 'broken', code: POLICY_VIOLATION, reason: 'The message came in too many pieces' };

interface Header {
  readonly final: boolean;
  readonly opcode: number;
  readonly bytes: number;
  readonly length: number;
  readonly mask: Uint8Array;
}

export class MessageReader {
  readonly #limits: MessageLimits;
  readonly #ahead: Ahead | null;
  /** Received and not looked at. */
  #unread: Buffer = nothing;
  #later: Buffer[] = [];
  #numUnread = 0;
  /** Everything goes to ws from here on: it ends the connection. */
  #handsOn = false;
  /** Of the message that has begun. */
  #pieces: Arriving | null = null;
  #text = false;
  #bytes = 0;
  #fragments = 0;
  #reads = 0;
  /** The last piece while it has room, and how much of it is filled. */
  #open: Buffer | null = null;
  #filled = 0;
  /** Of the frame that has begun: payload that has not come, and its mask, turned to the next byte. */
  #frame: Header | null = null;
  #left = 0;

  /** `ahead`: where large messages go while they arrive; null, they wait here. */
  constructor(limits: MessageLimits, ahead: Ahead | null = null) {
    this.#limits = limits;
    this.#ahead = ahead;
  }

  /** Bytes that were added and not read yet. */
  get numUnread(): number {
    return this.#numUnread;
  }

  /** The beginning of a frame or a message has come, and not its end. */
  get partial(): boolean {
    return !this.#handsOn && (this.#numUnread > 0 || this.#frame !== null || this.#pieces !== null);
  }

  /** What the socket gave; the reader keeps it and may write into it. */
  add(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.#reads = this.partial ? this.#reads + 1 : 0;
    if (this.#numUnread === 0) this.#unread = chunk;
    else this.#later.push(chunk);
    this.#numUnread += chunk.length;
  }

  /** The next of what came, or null when that takes more bytes. */
  read(): Incoming | null {
    for (;;) {
      if (this.#numUnread === 0) return null;
      if (this.#handsOn) return { kind: 'other', bytes: this.#take(this.#unread.length) };
      if (this.#reads > this.#limits.maxReads + (this.#bytes - this.#left) / READ_BYTES) return this.#break(tooManyReads);
      if (this.#frame === null) {
        const header = this.#header();
        if (header === null) return null;
        if (header.opcode >= FIRST_CONTROL) {
          // ws wants a control frame whole no more than we do, but an end behind it must not come first.
          if (this.#numUnread < header.bytes + header.length) return null;
          return { kind: 'other', bytes: this.#takeWhole(header.bytes + header.length) };
        }
        const refusal = this.#refusal(header);
        if (refusal === 'ws') {
          this.#handsOn = true;
          continue;
        }
        if (refusal !== null) return this.#break(refusal);
        const whole = this.#begin(header);
        if (whole !== null) return whole;
      } else this.#fill();
      if (this.#frame !== null && this.#left === 0) {
        const message = this.#endFrame(this.#frame);
        if (message !== null) return message;
      }
    }
  }

  /** Why a frame of a message is refused, or null. 'ws': it will say so itself, as it has seen all that matters. */
  #refusal({ opcode, length }: Header): 'ws' | Incoming | null {
    const { maxBytes, maxFragments } = this.#limits;
    if (this.#pieces === null) return opcode === CONTINUATION || length > maxBytes ? 'ws' : null;
    if (opcode !== CONTINUATION) return { kind: 'broken', code: PROTOCOL_ERROR, reason: 'A message began inside of another' };
    if (this.#bytes + length > maxBytes) return { kind: 'broken', code: TOO_LARGE, reason: 'The message is too large' };
    if (this.#fragments >= maxFragments) return { kind: 'broken', code: POLICY_VIOLATION, reason: 'The message has too many frames' };
    return null;
  }

  #break(why: Incoming): Incoming {
    this.#handsOn = true;
    this.drop();
    return why;
  }

  /** Forgets the message that has begun: its end will not come. */
  drop(): void {
    this.#pieces?.drop();
    this.#pieces = this.#open = null;
  }

  /** Looks at a header without taking it; null when it has not come whole. What ws has to refuse is handed to it. */
  #header(): Header | null {
    if (this.#unread.length < 2 && !this.#gather(2)) return null;
    const first = this.#unread[0] ?? 0;
    const second = this.#unread[1] ?? 0;
    const opcode = first & OPCODE;
    const short = second & LENGTH;
    const good =
      (first & RESERVED) === 0 && (second & MASKED) !== 0 && (opcode <= BINARY || (opcode >= FIRST_CONTROL && short < LENGTH_16));
    if (!good) {
      this.#handsOn = true;
      return { final: true, opcode: FIRST_CONTROL, bytes: 0, length: this.#unread.length, mask: nothing };
    }
    const lengthBytes = short === LENGTH_16 ? 2 : short === LENGTH_64 ? 8 : 0;
    const bytes = 2 + lengthBytes + MASK_BYTES;
    if (this.#unread.length < bytes && !this.#gather(bytes)) return null;
    const head = this.#unread;
    const length =
      lengthBytes === 0 ? short : lengthBytes === 2 ? head.readUInt16BE(2) : head.readUInt32BE(2) * HIGH_WORD + head.readUInt32BE(6);
    return { final: (first & FINAL) !== 0, opcode, bytes, length, mask: head.subarray(bytes - MASK_BYTES, bytes) };
  }

  /** Makes the unread bytes begin with `count` in one buffer. False when there are fewer. */
  #gather(count: number): boolean {
    if (this.#numUnread < count) return false;
    while (this.#unread.length < count) this.#unread = Buffer.concat([this.#unread, this.#later.shift() ?? nothing]);
    return true;
  }

  /** Begins a frame of a message; a message of one frame that is here whole is read at once, where it lies. */
  #begin(header: Header): Incoming | null {
    const { final, opcode, bytes, length, mask } = header;
    const kept = { ...header, mask: Uint8Array.from(mask) };
    this.#take(bytes);
    if (opcode !== CONTINUATION) this.#text = opcode === TEXT;
    if (this.#pieces === null && final && this.#unread.length >= length) {
      const payload = this.#take(length);
      unmask(payload, kept.mask, 0);
      return { kind: 'message', text: this.#text, pieces: [payload], bytes: length };
    }
    this.#pieces ??= new Arriving(this.#ahead);
    this.#fragments++;
    this.#bytes += length;
    this.#frame = kept;
    this.#left = length;
    return null;
  }

  /** Takes payload of the frame: a long read is a piece as it lies, others go into the open piece. */
  #fill(): void {
    const { mask, length } = this.#frame as Header; // proof: called inside of a frame
    if (this.#isOwnPiece()) {
      this.#closePiece();
      const piece = this.#take(this.#unread.length);
      unmask(piece, mask, length - this.#left);
      this.#left -= piece.length;
      this.#pieces?.push(piece);
      return;
    }
    if (this.#open === null) {
      this.#open = Buffer.allocUnsafeSlow(this.#left >= PIECE_BYTES ? PIECE_BYTES : Math.max(this.#left, LONG_READ_BYTES));
      this.#filled = 0;
    }
    const open = this.#open;
    const part = this.#take(Math.min(this.#unread.length, this.#left, open.length - this.#filled));
    open.set(part, this.#filled);
    unmask(open.subarray(this.#filled, this.#filled + part.length), mask, length - this.#left);
    this.#filled += part.length;
    this.#left -= part.length;
    if (this.#filled === open.length) this.#closePiece();
  }

  /** The first of the unread bytes are payload, all of them, and nothing else is in their memory, so that they can move with it. */
  #isOwnPiece(): boolean {
    const { length, buffer } = this.#unread;
    const wastes = this.#open !== null && this.#filled < this.#open.length / 2;
    return !wastes && length >= LONG_READ_BYTES && length <= this.#left && length > buffer.byteLength / 2;
  }

  #closePiece(): void {
    if (this.#open !== null && this.#filled > 0) this.#pieces?.push(this.#open.subarray(0, this.#filled));
    this.#open = null;
  }

  #endFrame({ final }: Header): Incoming | null {
    this.#frame = null;
    if (!final) return null;
    this.#closePiece();
    const pieces = this.#pieces?.take() ?? [];
    const bytes = this.#bytes;
    this.#pieces = null;
    this.#bytes = this.#fragments = this.#reads = 0;
    return { kind: 'message', text: this.#text, pieces: pieces.length > 0 ? pieces : [nothing], bytes };
  }

  /** The next `count` bytes, all of them in the first buffer. */
  #take(count: number): Buffer {
    const taken = this.#unread.subarray(0, count);
    this.#numUnread -= count;
    this.#unread = count === this.#unread.length ? (this.#later.shift() ?? nothing) : this.#unread.subarray(count);
    return taken;
  }

  #takeWhole(count: number): Buffer {
    this.#gather(count);
    return this.#take(count);
  }
}

/** In place: XOR with the mask, of which byte `phase` modulo 4 is the first one's (5.3). Long runs go by words. */
function unmask(bytes: Uint8Array, mask: Uint8Array, phase: number): void {
  let at = 0;
  const byBytes = (end: number): void => {
    for (; at < end; at++) bytes[at] = (bytes[at] ?? 0) ^ (mask[(phase + at) & 3] ?? 0);
  };
  if (bytes.length >= FEW_BYTES) {
    byBytes(-bytes.byteOffset & 3);
    const turned = Uint8Array.from({ length: 4 }, (_, i) => mask[(phase + at + i) & 3] ?? 0);
    const word = new Uint32Array(turned.buffer)[0] ?? 0;
    const words = new Uint32Array(bytes.buffer, bytes.byteOffset + at, (bytes.length - at) >>> 2);
    for (let i = 0; i < words.length; i++) words[i] = (words[i] ?? 0) ^ word;
    at += words.length * 4;
  }
  byBytes(bytes.length);
}
