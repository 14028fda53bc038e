/** The models of the page at / in a real browser: their state, and getting another one from a stand-in of the hub. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { findSnapshot, listUnfinished } from '../../../config/hub-cache.js';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { eventually } from '../../helpers/eventually.js';
import { startHub } from '../../helpers/hub/stand-in.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { Browser } from '../browser.js';
import { Home } from './home.js';

const MiB = 2 ** 20;
const hub = await startHub({ files: { 'config.json': '{}', 'model.safetensors': randomBytes(2 * MiB) }, bytesPerMs: 400 });
const cache = tempFolder();
const at = await startTestDaemon([`inference.cache_dir=${JSON.stringify(cache)}`], undefined, { HF_ENDPOINT: hub.url });
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
