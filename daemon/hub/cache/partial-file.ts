/**
 * A file of which parts have come: its content written in place, and a journal of the blocks that are there, so that a process which is
 * killed at any moment loses no more than one block of each of its connections.
 *
 *   HASH.inferd-partial   as long as the file, with holes
 *   HASH.inferd-journal   64 bytes of text: version, length, block size; then a bit a block (the first one is the lowest of the first byte)
 *
 * A block's bit is set after its bytes have been handed to the kernel, which outlives the process. What a power failure leaves is found by
 * the hash. Written by one process at a time (claim.ts).
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { blockBytes, journalHead, journalHeadBytes, journalSuffix, numBlocks, partialSuffix } from '../../../config/models/hub-cache.js';
import { systemCode } from '../error.js';
import { cacheError, removeFile } from './cache-folder.js';

/** Opens for reading and writing what is a file itself and no link; makes it when it is missing. */
const flags = constants.O_RDWR | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0);

export class PartialFile {
  readonly path: string;
  readonly size: number;
  readonly #content: FileHandle;
  readonly #journal: FileHandle;
  readonly #bits: Uint8Array;
  #received: number;

  private constructor(path: string, size: number, files: readonly [FileHandle, FileHandle], bits: Uint8Array) {
    this.path = path;
    this.size = size;
    [this.#content, this.#journal] = files;
    this.#bits = bits;
    this.#received = 0;
    for (let block = 0; block < numBlocks(size); block++) if (this.has(block)) this.#received += this.#lengthOf(block);
  }

  /** Opens or makes the partial file of `blob`, of `size` bytes. @throws PullError */
  static async open(blob: string, size: number): Promise<PartialFile> {
    const path = `${blob}${partialSuffix}`;
    const files: FileHandle[] = [];
    try {
      const content = await openPlain(path);
      files.push(content);
      const journal = await openPlain(`${blob}${journalSuffix}`);
      files.push(journal);
      const bits = new Uint8Array(Math.ceil(numBlocks(size) / 8));
      const head = Buffer.from(journalHead(size));
      const found = Buffer.alloc(journalHeadBytes);
      await journal.read(found, 0, journalHeadBytes, 0);
      if (found.equals(head) && (await content.stat()).size === size) await journal.read(bits, 0, bits.length, journalHeadBytes);
      else {
        await journal.truncate(0);
        await content.truncate(0);
        await content.truncate(size);
        await journal.write(Buffer.concat([head, bits]), 0, head.length + bits.length, 0);
      }
      return new PartialFile(path, size, [content, journal], bits);
    } catch (error) {
      for (const file of files) await file.close();
      throw cacheError(error, path);
    }
  }

  /** Bytes of the blocks that are there. */
  get received(): number {
    return this.#received;
  }

  get complete(): boolean {
    return this.#received === this.size;
  }

  has(block: number): boolean {
    return ((this.#bits[block >> 3] ?? 0) & (1 << (block & 7))) !== 0;
  }

  /** Writes bytes of the file at `offset`, and nothing beyond its end. */
  async write(offset: number, bytes: Buffer): Promise<void> {
    try {
      for (let done = 0; done < bytes.length; ) {
        const { bytesWritten } = await this.#content.write(bytes, done, bytes.length - done, offset + done);
        done += bytesWritten;
      }
    } catch (error) {
      throw cacheError(error, this.path);
    }
  }

  /** All bytes from `start`, a block's first, up to `end` are written: notes the blocks that are whole by that. Returns where the next begins. */
  async note(start: number, end: number): Promise<number> {
    const first = Math.floor(start / blockBytes);
    const behind = end === this.size ? numBlocks(this.size) : Math.floor(end / blockBytes);
    for (let block = first; block < behind; block++) {
      if (this.has(block)) continue;
      const byte = block >> 3;
      this.#bits[byte] = (this.#bits[byte] ?? 0) | (1 << (block & 7));
      this.#received += this.#lengthOf(block);
    }
    if (behind <= first) return start;
    const from = first >> 3;
    const length = ((behind - 1) >> 3) - from + 1;
    try {
      await this.#journal.write(this.#bits, from, length, journalHeadBytes + from);
      return behind * blockBytes;
    } catch (error) {
      throw cacheError(error, this.path);
    }
  }

  /** Brings the content to the disk: from now on only its name says that it is whole. */
  async sync(): Promise<void> {
    try {
      await this.#content.datasync();
    } catch (error) {
      throw cacheError(error, this.path);
    }
  }

  async close(): Promise<void> {
    await this.#content.close();
    await this.#journal.close();
  }

  #lengthOf(block: number): number {
    return Math.min(blockBytes, this.size - block * blockBytes);
  }
}

async function openPlain(path: string): Promise<FileHandle> {
  const file = await open(path, flags, 0o644).catch((error: unknown) => {
    if (systemCode(error) === 'ELOOP') return null;
    throw error;
  });
  const stat = await file?.stat();
  if (file !== null && stat?.isFile() && stat.nlink === 1) return file;
  // Something else in its place, such as a link, or a second name of somebody's file: ours is a new one.
  await file?.close();
  await removeFile(path);
  return open(path, flags | constants.O_EXCL, 0o644);
}

/** Forgets what has come of a blob. */
export async function discardPartial(blob: string): Promise<void> {
  await removeFile(`${blob}${journalSuffix}`);
  await removeFile(`${blob}${partialSuffix}`);
}
