import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { optionTable } from '../../config/option-docs.js';
import { packageRoot } from '../../native/index.js';

test('config/README.md shows the option table as the schema gives it', () => {
  const readme = readFileSync(join(packageRoot(), 'config', 'README.md'), 'utf8');
  const shown = /<!-- options: begin -->\n([\s\S]*?)\n<!-- options: end -->/.exec(readme)?.[1];
  assert.equal(shown, optionTable().trim(), 'regenerate it with: npx inferd config init - --format markdown');
});
