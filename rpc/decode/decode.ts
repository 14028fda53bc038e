/**
 * Bytes of a frame or body -> a checked message. Everything the JSON-RPC 2.0 specification says about malformed input is decided here,
 * to the letter, before the package json-rpc-2.0 sees a member; so is every limit on size and structure.
 *
 * Called for each frame on the main thread, for large ones in a thread of their own (large-messages.ts). Never throws. Choices where the specification is silent: an id may be a fraction, but not an
 * integer beyond 2^53, which could not be echoed as it came; a message with a `result` or `error` member is no request, since the daemon
 * asks its clients nothing; own members named `__proto__` are dropped wherever they stand, and refused in schemas (proto-members.ts).
 */
import { Buffer, isUtf8 } from 'node:buffer';
import { unpackMessage } from '../../actors/messages/codec.js';
import type { Failure } from '../../actors/messages/errors.js';
import { type Id, type Member, type Message, maxBatchMembers } from '../message.js';
import { messageLimits, scanJson } from './json-scan.js';
import { scanMsgpack } from './msgpack-scan.js';
import { dropProto } from './proto-members.js';
import { textOf } from './utf8.js';

export type Encoding = 'json' | 'msgpack';

/** Decodes one frame or body of at most `maxBytes`. */
export function decodeMessage(data: string | Uint8Array, encoding: Encoding, maxBytes: number): Message {
  const bytes = typeof data === 'string' ? Buffer.from(data, 'utf8') : data;
  if (bytes.length > maxBytes) return failed('invalid_request', `The message is larger than ${maxBytes} bytes`);
  if (encoding === 'json') return decodeJson(bytes);
  if (typeof data === 'string') return failed('parse_error', 'A text frame came where msgpack was agreed on');
  return decodeMsgpack(bytes);
}

function decodeJson(bytes: Uint8Array): Message {
  const { value, failure, notUtf8, mayHoldProto } = parsedJson(bytes);
  if (failure === undefined) return checkMessage(value, mayHoldProto === true);
  return { kind: 'failed', failure, ...(notUtf8 ? { notUtf8 } : {}) };
}

/** What JSON text holds, or why it cannot be read. */
export interface Decoded {
  readonly value?: unknown;
  readonly failure?: Failure;
  readonly notUtf8?: true;
  /** As of a member of a message. */
  readonly refused?: Failure;
}

/** JSON text within the limits of a message as a value: the body of a face. */
export function decodeValue(bytes: Uint8Array): Decoded {
  const { mayHoldProto, ...decoded } = parsedJson(bytes);
  const refused = mayHoldProto ? dropProto(decoded.value) : null;
  return refused === null ? decoded : failed('invalid_request', refused);
}

function parsedJson(bytes: Uint8Array): Decoded & { readonly mayHoldProto?: boolean } {
  if (!isUtf8(bytes)) return { ...failed('parse_error', 'The message is not valid UTF-8'), notUtf8: true };
  const fault = scanJson(bytes);
  if (fault !== null) return structureFailure(fault);
  const text = textOf(bytes);
  try {
    return { value: JSON.parse(text) as unknown, mayHoldProto: mayNameProto(text) };
  } catch {
    return failed('parse_error');
  }
}

function decodeMsgpack(bytes: Uint8Array): Message {
  const fault = scanMsgpack(bytes);
  if (fault === 'broken') return failed('parse_error', 'The message is not valid msgpack');
  if (fault === 'type') {
    return failed(
      'invalid_request',
      'A message holds only nil, booleans, finite numbers, integers up to 2^53, strings, arrays and string-keyed maps',
    );
  }
  if (fault !== null) return structureFailure(fault);
  try {
    return checkMessage(unpackMessage(bytes), Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).includes('__proto__'));
  } catch {
    return failed('parse_error', 'The message is not valid msgpack');
  }
}

function structureFailure(fault: 'broken' | 'deep' | 'large'): FailedMessage {
  if (fault === 'broken') return failed('parse_error');
  if (fault === 'deep') return failed('invalid_request', `The message nests deeper than ${messageLimits.maxDepth} levels`);
  return failed('invalid_request', `The message holds more than ${messageLimits.maxValues} values or ${messageLimits.maxKeys} members`);
}

/** The name may also be written with escapes; those are rare enough to look for it on suspicion. */
function mayNameProto(text: string): boolean {
  return text.includes('__proto__') || (text.includes('\\u00') && /\\u00[567]/.test(text));
}

type FailedMessage = Message & { readonly kind: 'failed' };

function failed(kind: Failure['kind'], message?: string): FailedMessage {
  return { kind: 'failed', failure: message === undefined ? { kind } : { kind, message } };
}

/** A parsed value of either encoding as a message. `mayHoldProto`: members named `__proto__` have to be looked for. */
function checkMessage(value: unknown, mayHoldProto: boolean): Message {
  if (!Array.isArray(value)) return { kind: 'single', member: checkMember(value, mayHoldProto) };
  if (value.length === 0) return failed('invalid_request', 'A batch needs at least one member');
  if (value.length > maxBatchMembers) return failed('invalid_request', `A batch may have at most ${maxBatchMembers} members`);
  return { kind: 'batch', members: value.map((one) => checkMember(one, mayHoldProto)) };
}

function checkMember(value: unknown, mayHoldProto: boolean): Member {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return invalid(null, 'A request is an object');
  const own = (key: string): unknown => (Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined);
  const rawId = own('id');
  if (rawId !== undefined && !isId(rawId))
    return invalid(null, `id must be a string of at most ${maxIdLength} characters, a number that can be echoed exactly, or null`);
  const id = rawId ?? null;
  if (own('jsonrpc') !== '2.0') return invalid(id, 'jsonrpc must be "2.0"');
  const method = own('method');
  if (typeof method !== 'string') return invalid(id, 'method must be a string');
  if (Object.hasOwn(value, 'result') || Object.hasOwn(value, 'error')) return invalid(id, 'A request has neither result nor error');
  const params = own('params');
  if (params !== undefined && (typeof params !== 'object' || params === null)) {
    return invalid(id, 'params must be an object or an array when present');
  }
  // Nothing else of the message goes on that could hold one.
  const refused = mayHoldProto ? dropProto(params) : null;
  if (refused !== null) return invalid(id, refused);
  return {
    kind: 'call',
    method,
    ...(rawId === undefined ? {} : { id }),
    ...(params === undefined ? {} : { params: params as Readonly<Record<string, unknown>> | readonly unknown[] }), // proof: checked above
  };
}

/** Ids are kept until their answer is sent, so their length is bounded. */
const maxIdLength = 1024;

function isId(value: unknown): value is Id {
  if (typeof value === 'number') return Number.isInteger(value) ? Number.isSafeInteger(value) : Number.isFinite(value);
  return value === null || (typeof value === 'string' && value.length <= maxIdLength);
}

function invalid(id: Id, reason: string): Member {
  return { kind: 'invalid', id, reason };
}
