/** The models of the page at / in a real browser: their state, and getting another one from a stand-in of the hub. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { findSnapshot, listUnfinished } from '../../../config/models/hub-cache.js';
import { packageRoot } from '../../../native/index.js';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { eventually } from '../../helpers/eventually.js';
import { startHub } from '../../helpers/hub/stand-in.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { Browser } from '../browser.js';
import { Home } from './home.js';

const MiB = 2 ** 20;
const hub = await startHub({ files: { 'config.json': '{}', 'model.safetensors': randomBytes(2 * MiB) }, bytesPerMs: 400 });
const cache = tempFolder();
const folder = tempFolder();
cpSync(join(packageRoot(), 'config/demo-model'), join(folder, 'twin'), { recursive: true });
const sets = [`inference.cache_dir=${JSON.stringify(cache)}`, `models.directories=["${folder}"]`, 'cache.num_gpu_blocks_override=512'];
const at = await startTestDaemon(sets, undefined, { HF_ENDPOINT: hub.url });
const browser = await Browser.start();
const home = new Home(browser, at.http);
after(async () => {
  await browser.close();
  await at.close();
  await hub.close();
});
beforeEach(async () => {
  browser.complaints.length = 0;
  await browser.look(1360, 900, 'light');
  await home.open('models');
  await browser.until("document.querySelector('.model .chip')?.textContent === 'ready'");
});

const says = (pattern: RegExp) => browser.until(`${pattern}.test(document.querySelector('.pull [role="status"]').textContent)`);

test('a model is told with its state and what is known of it', async () => {
  assert.match(await home.text('.model'), /7\.3 M parameters.*context 4,096 tokens/);
  assert.deepEqual(browser.complaints, []);
});

test('models are loaded and unloaded by their buttons, asked in the chat, and shown on the board', async () => {
  const state = (id: string, want: string) =>
    browser.until(
      `[...document.querySelectorAll('.model')].find((m) => m.querySelector('h2').textContent === '${id}')?.querySelector('.chip').textContent === '${want}'`,
    );
  const click = (name: string) => browser.click(`button[aria-label="${name}"]`);
  await state('twin', 'unloaded');
  await click('Load twin');
  await state('twin', 'ready');
  await browser.shoot('models-two');
  await browser.value("location.hash = '#/chat'");
  await home.set('Model', 'twin');
  await home.set('Max tokens', '5');
  await home.say('Hello');
  await home.answered();
  assert.match(await home.text('.turn.assistant .meta'), /tokens/);
  await browser.value("location.hash = '#/board'");
  await browser.until("document.querySelectorAll('.memory').length === 2");
  assert.equal(await browser.value('document.querySelector(\'[aria-label="Model shown"]\').checkVisibility()'), true);
  await home.setNamed('Model shown', 'twin');
  // Only "twin" was asked something: before this the tiles are those of "demo". All of them are written at once.
  await browser.until('document.querySelector(\'[aria-label="Running"] .more\').textContent === "1 finished"');
  assert.match(await home.text('[aria-label="KV"] .more'), /of 512 blocks/);
  const other = await at.open();
  await other.call('models.unload', { model: 'twin' });
  await browser.until(
    "document.querySelectorAll('.memory').length === 1 && document.querySelector('[aria-label=\"Model shown\"]').value === 'demo'",
  );
  await other.close();
  await browser.value("location.hash = '#/models'");
  await state('twin', 'unloaded');
  assert.deepEqual(browser.complaints, []);
});

test('a pull shows how far it is, is stopped, and goes on where it was', async () => {
  await home.set('Model to pull', 'org/model');
  await home.press('Pull');
  await browser.until(
    "document.querySelector('.pull progress').value > 100_000 && document.querySelector('.pull progress').checkVisibility()",
  );
  await browser.shoot('models-light');
  await browser.look(1360, 900, 'dark');
  await browser.shoot('models-dark');
  await browser.look(390, 800, 'dark');
  await browser.shoot('models-narrow-dark');
  assert.deepEqual(await home.tooWide(), []);
  await home.press('Stop pulling');
  await says(/Stopped; what came is kept/);
  await eventually('it is kept', () => (listUnfinished(cache)[0]?.receivedBytes ?? 0) > 0);
  await home.press('Pull');
  await says(/org\/model is here/);
  assert.notEqual(findSnapshot(cache, 'org/model', 'main'), null);
  assert.equal(await browser.value("document.querySelector('.pull progress').checkVisibility()"), false);
  assert.deepEqual(browser.complaints, []);
});

test('what cannot be done is told as a sentence', async () => {
  await home.set('Model to pull', '../../etc');
  await home.press('Pull');
  await browser.until("document.querySelector('.pull .error')?.textContent.endsWith('.')");
  await home.set('Model to pull', 'org/other');
  await home.press('Pull');
  await says(/org\/other.*\.$/);
  assert.deepEqual(browser.complaints, []);
});
