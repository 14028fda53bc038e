/** Where a Chromium is: the one that INFERD_CHROMIUM names, or one of the usual names. Also asked by test/run.mjs. */
import { spawnSync } from 'node:child_process';

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/** Its name or path; undefined when there is none. */
export function findBrowser(): string | undefined {
  const asked = [process.env['INFERD_CHROMIUM'], ...names];
  return asked.find((name) => name !== undefined && spawnSync(name, ['--version']).status === 0);
}
