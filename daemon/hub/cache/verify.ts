/** Is a file on the disk what its hash says? Read in pieces, with a turn of the event loop between them. */
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { cancelled } from '../error.js';
import type { ContentHash } from '../repository/metadata.js';
import { cacheError } from './cache-folder.js';

const pieceBytes = 512 * 1024;

/** `size`: of the file; git puts it before the content. @throws PullError cancelled, cache */
export async function fits(path: string, size: number, { algorithm, hex }: ContentHash, signal: AbortSignal): Promise<boolean> {
  const hash = createHash(algorithm === 'sha256' ? 'sha256' : 'sha1');
  if (algorithm === 'git-sha1') hash.update(`blob ${size}\0`);
  try {
    const file = await open(path, 'r');
    try {
      const piece = Buffer.allocUnsafe(Math.min(pieceBytes, Math.max(1, size)));
      for (let at = 0; at < size; ) {
        if (signal.aborted) throw cancelled();
        const { bytesRead } = await file.read(piece, 0, piece.length, at);
        if (bytesRead === 0) return false;
        hash.update(piece.subarray(0, bytesRead));
        at += bytesRead;
      }
    } finally {
      await file.close();
    }
  } catch (error) {
    throw cacheError(error, path);
  }
  return hash.digest('hex') === hex;
}
