/**
 * UTF-8 that is known to be valid -> text, without holding up the event loop more than it must. Used by decode.ts on the main thread.
 *
 * V8 decodes text beyond ASCII at 200 to 250 MB/s, so that 36 MB of it stop the loop for 150 to 220 ms. Node's transcoder goes by way of
 * UTF-16 and takes 30 ms for the same; a small text is not worth its two copies. To be dropped when `toString('utf8')` is as fast (measured
 * with Node 20).
 */
import { Buffer, isAscii, transcode } from 'node:buffer';

const SMALL_BYTES = 64 * 1024;

/** `bytes`: valid UTF-8. Keeps nothing of it. */
export function textOf(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (buffer.length <= SMALL_BYTES) return buffer.toString('utf8');
  return isAscii(buffer) ? buffer.toString('latin1') : transcode(buffer, 'utf8', 'utf16le').toString('utf16le');
}
