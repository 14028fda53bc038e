#!/usr/bin/env node
// The `inferd` command: starts the compiled CLI, or says in one sentence that it was not built.
import { existsSync } from 'node:fs';

const main = new URL('../../dist/daemon/cli/main.js', import.meta.url);
if (!existsSync(main)) {
  process.stderr.write('inferd: not built yet; run "npm run build" in its folder first.\n');
  process.exit(69);
}
await import(main.href);
