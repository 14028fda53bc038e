// Puts the command `inferd` into node_modules/.bin of this checkout, last step of `npm run build`. Without it `npx inferd` here would first
// install a copy of the package into its cache.
import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const command = fileURLToPath(new URL('inferd.mjs', import.meta.url));
const bin = join(dirname(command), '..', '..', 'node_modules', '.bin');
const link = join(bin, 'inferd');
if (process.platform !== 'win32') {
  mkdirSync(bin, { recursive: true });
  rmSync(link, { force: true });
  symlinkSync(relative(bin, command), link);
}
