/** Temporary folders of tests, removed when the test process ends. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const made: string[] = [];

/** A new empty folder with a short path, so that sockets fit in it. */
export function tempFolder(): string {
  if (made.length === 0) {
    process.once('exit', () => {
      for (const folder of made) rmSync(folder, { recursive: true, force: true });
    });
  }
  const folder = mkdtempSync(join(tmpdir(), 'inferd-test-'));
  made.push(folder);
  return folder;
}
