/** The thread of large-messages.ts: decodes one large message after the other, and cuts what is certain to be refused. */

import { readlinkSync } from 'node:fs';
import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import type { Member } from '../message.js';
import { cutTexts, type TextLimits } from './cut-texts.js';
import { decodeMessage, decodeValue } from './decode.js';
import type { DecodeAnswer, DecodeJob, ToDecode } from './large-messages.js';
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

function decode({ id, pieces, as, face, maxBytes, limits }: DecodeJob): DecodeAnswer['decoded'] {
  const bytes = joined([...(parts.get(id) ?? []), ...pieces]);
  parts.delete(id);
  if (as === 'value') {
    const decoded = decodeValue(bytes);
    const refused = cutTexts(face, decoded.value, limits);
    return refused === null ? decoded : { ...decoded, refused };
  }
  const message = decodeMessage(bytes, as, maxBytes);
  if (message.kind === 'single') return { ...message, member: cutMember(message.member, limits) };
  return message.kind === 'batch' ? { ...message, members: message.members.map((member) => cutMember(member, limits)) } : message;
}

function cutMember(member: Member, limits: TextLimits): Member {
  if (member.kind !== 'call') return member;
  const refused = cutTexts(member.method, member.params, limits);
  return refused === null ? member : { ...member, refused };
}

giveWay();
parentPort?.on('message', (message: ToDecode) => {
  const { kind, id } = message;
  if (kind === 'job') parentPort?.postMessage({ id, decoded: decode(message) } satisfies DecodeAnswer);
  else if (kind === 'drop') parts.delete(id);
  else {
    const before = parts.get(id);
    if (before === undefined) parts.set(id, [...message.pieces]);
    else before.push(...message.pieces);
  }
});
