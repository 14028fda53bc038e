/**
 * Reads the JSON-RPC vectors of test/fixtures/jsonrpc and plays one against any peer: a connection in memory, or a real socket.
 * Silence is proved, not waited for: after the last line a ping with an id of its own must be answered by the very next frame.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export interface VectorStep {
  readonly kind: 'send' | 'bytes' | 'expect' | 'expect-any';
  readonly text: string;
}

export interface Vector {
  readonly file: string;
  readonly title: string;
  readonly steps: readonly VectorStep[];
}

/** One connection under test. */
export interface VectorPeer {
  send(frame: string | Uint8Array): void;
  /** The next frame as a parsed value. Rejects when none comes. */
  next(): Promise<unknown>;
}

/** Files whose cases need nothing but a daemon: no example methods, no frames that a WebSocket refuses itself. */
export const liveVectorFiles: readonly string[] = ['requests.io', 'json.io', 'batches.io', 'params.io', 'calls.io'];

function folder(): string {
  let dir = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(dir, 'package.json'))) dir = dirname(dir);
  return join(dir, 'test', 'fixtures', 'jsonrpc');
}

export function vectorFiles(): readonly string[] {
  return readdirSync(folder()).filter((name) => name.endsWith('.io'));
}

const marks: readonly (readonly [string, VectorStep['kind']])[] = [
  ['>> ', 'send'],
  ['>x ', 'bytes'],
  ['>x', 'bytes'],
  ['<<* ', 'expect-any'],
  ['<< ', 'expect'],
];

export function loadVectors(file: string): readonly Vector[] {
  const vectors: { file: string; title: string; steps: VectorStep[] }[] = [];
  for (const line of readFileSync(join(folder(), file), 'utf8').split('\n')) {
    if (line === '' || line.startsWith('# ')) continue;
    if (line.startsWith('== ')) {
      vectors.push({ file, title: line.slice(3), steps: [] });
      continue;
    }
    const mark = marks.find(([text]) => line.startsWith(text));
    assert.ok(mark, `${file}: what is this line? ${line}`);
    vectors.at(-1)?.steps.push({ kind: mark[1], text: line.slice(mark[0].length) });
  }
  return vectors;
}

/** Plays the case. @throws AssertionError */
export async function playVector(vector: Vector, peer: VectorPeer): Promise<void> {
  let early: unknown;
  const next = async (): Promise<unknown> => {
    const frame = early ?? (await peer.next());
    early = undefined;
    return frame;
  };
  for (const step of vector.steps) {
    if (step.kind === 'send') peer.send(step.text);
    else if (step.kind === 'bytes') peer.send(Buffer.from(step.text, 'hex'));
    else if (step.kind === 'expect') assertMatches(await next(), JSON.parse(step.text), vector.title);
    else {
      const pattern: unknown = JSON.parse(step.text);
      let frame = await next();
      while (difference(frame, pattern, '') === null) frame = await next();
      early = frame;
    }
  }
  assert.equal(early, undefined, `${vector.title}: an unexpected frame`);
  peer.send('{"jsonrpc":"2.0","id":"end of the case","method":"ping"}');
  assert.deepEqual(await next(), { jsonrpc: '2.0', id: 'end of the case', result: {} }, `${vector.title}: then silence`);
}

function assertMatches(actual: unknown, expected: unknown, title: string): void {
  const found = difference(actual, expected, '');
  assert.equal(found, null, `${title}: ${found}\n  got      ${JSON.stringify(actual)}\n  expected ${JSON.stringify(expected)}`);
}

/** Where `actual` does not match the pattern, or null. */
function difference(actual: unknown, expected: unknown, path: string): string | null {
  switch (expected) {
    case '<any>':
      return null;
    case '<string>':
    case '<number>':
      return typeof actual === expected.slice(1, -1) ? null : `${path} is no ${expected.slice(1, -1)}`;
    case '<array>':
      return Array.isArray(actual) ? null : `${path} is no array`;
    case '<object>':
      return typeof actual === 'object' && actual !== null && !Array.isArray(actual) ? null : `${path} is no object`;
    default:
  }
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual)) return `${path} is no array`;
    if (actual.length !== expected.length) return `${path} has ${actual.length} elements, not ${expected.length}`;
    return first(expected.map((value, i) => difference(actual[i], value, `${path}[${i}]`)));
  }
  if (typeof expected === 'object' && expected !== null) {
    if (typeof actual !== 'object' || actual === null || Array.isArray(actual)) return `${path} is no object`;
    const have = actual as Record<string, unknown>;
    const want = expected as Record<string, unknown>;
    const extra = Object.hasOwn(want, '...') ? undefined : Object.keys(have).find((key) => !Object.hasOwn(want, key));
    if (extra !== undefined) return `${path}.${extra} is not expected`;
    const keys = Object.keys(want).filter((key) => key !== '...');
    return first(
      keys.map((key) => (Object.hasOwn(have, key) ? difference(have[key], want[key], `${path}.${key}`) : `${path}.${key} is missing`)),
    );
  }
  return Object.is(actual, expected) ? null : `${path} is ${JSON.stringify(actual)}`;
}

function first(found: readonly (string | null)[]): string | null {
  return found.find((text) => text !== null) ?? null;
}
