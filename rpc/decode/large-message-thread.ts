/**
 * The thread of large-messages.ts: decodes one large message after the other, cuts what is certain to be refused, and puts long lists of ids
 * in one piece each.
 */

import { readlinkSync } from 'node:fs';
import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import type { Failure } from '../../actors/messages/errors.js';
import type { Member } from '../message.js';
import { cutTexts, type TextLimits } from './cut-texts.js';
import { decodeMessage, decodeValue } from './decode.js';
import type { DecodeAnswer, DecodeJob, ToDecode } from './decode-thread.js';
import { packIds } from './pack-ids.js';
import { joined } from './pieces.js';

/** Large messages wait for a processor rather than the answers to others. */
const NICE = 10;

/** Of this thread alone, where the system has such a thing (Linux). */
function giveWay(): void {
  try {
    setPriority(Number(readlinkSync('/proc/thread-self').split('/').at(-1)), NICE);
  } catch {
    // Then they share alike.
  }
}

/** What has come ahead of its job. */
const parts = new Map<number, Uint8Array[]>();

interface Done {
  readonly decoded: DecodeAnswer['decoded'];
  /** Memory that goes along. */
  readonly moved: ArrayBuffer[];
}

function decode({ id, pieces, as, face, maxBytes, limits }: DecodeJob): Done {
  const bytes = joined([...(parts.get(id) ?? []), ...pieces]);
  parts.delete(id);
  if (as === 'value') {
    const decoded = decodeValue(bytes);
    const { refused, moved } = prepare(face, decoded.value, limits);
    return { decoded: refused === null ? decoded : { ...decoded, refused }, moved };
  }
  const moved: ArrayBuffer[] = [];
  const member = (one: Member): Member => {
    if (one.kind !== 'call') return one;
    const prepared = prepare(one.method, one.params, limits);
    moved.push(...prepared.moved);
    return prepared.refused === null ? one : { ...one, refused: prepared.refused };
  };
  const message = decodeMessage(bytes, as, maxBytes);
  if (message.kind === 'single') return { decoded: { ...message, member: member(message.member) }, moved };
  return { decoded: message.kind === 'batch' ? { ...message, members: message.members.map(member) } : message, moved };
}

/** In place. */
function prepare(method: string, params: unknown, limits: TextLimits): { refused: Failure | null; moved: ArrayBuffer[] } {
  return { refused: cutTexts(method, params, limits), moved: packIds(method, params) };
}

giveWay();
parentPort?.on('message', (message: ToDecode) => {
  const { kind, id } = message;
  if (kind === 'job') {
    const { decoded, moved } = decode(message);
    parentPort?.postMessage({ id, decoded } satisfies DecodeAnswer, moved);
  } else if (kind === 'drop') parts.delete(id);
  else {
    const before = parts.get(id);
    if (before === undefined) parts.set(id, [...message.pieces]);
    else before.push(...message.pieces);
  }
});
