#!/usr/bin/env node
// The `inferd` command: starts the compiled CLI, or says in one sentence that it was not built or that Node is too old.
import { existsSync } from 'node:fs';

if (Number.parseInt(process.versions.node, 10) < 20) {
  process.stderr.write(`inferd: Node ${process.versions.node} is too old; install Node 20 or later.\n`);
  process.exit(69);
}
const main = new URL('../../dist/daemon/cli/main.js', import.meta.url);
if (!existsSync(main)) {
  process.stderr.write('inferd: not built yet; run "npm run build" in its folder first.\n');
  process.exit(69);
}
await import(main.href);
