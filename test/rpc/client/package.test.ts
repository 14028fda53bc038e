/** What the package gives to other projects: the entries of `exports` and the command. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../native/index.js';

const manifest = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as {
  bin: { inferd: string };
  exports: { './client': { browser: Entry } & Entry };
};
interface Entry {
  readonly types: string;
  readonly default: string;
}

test('the client is there for Node and for bundlers of pages, each with types of its own; so is the command', () => {
  const { browser, ...node } = manifest.exports['./client'];
  for (const file of [manifest.bin.inferd, node.types, node.default, browser.types, browser.default])
    assert.ok(existsSync(join(packageRoot(), file)), file);
  assert.match(readFileSync(join(packageRoot(), browser.types), 'utf8'), /url\?: string/);
  assert.deepEqual(Object.keys(manifest.exports['./client']), ['browser', 'types', 'default'], 'the first condition that fits counts');
});

test('the package finds its own client by name', async () => {
  const name = 'inferd/client';
  const client = (await import(name)) as Record<string, unknown>;
  assert.equal(typeof client['connect'], 'function');
  assert.equal(typeof client['RpcError'], 'function');
});
