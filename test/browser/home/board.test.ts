/** The board and the inspector of the page at / in a real browser, while the daemon works. */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { Browser } from '../browser.js';
import { Home } from './home.js';
import { startLoad } from './load.js';

const at = await startTestDaemon([
  'scheduler.max_num_sequences=4',
  'scheduler.max_num_batched_tokens=256',
  'cache.num_gpu_blocks_override=700',
]);
const browser = await Browser.start();
const home = new Home(browser, at.http);
after(async () => {
  await browser.close();
  await at.close();
});
beforeEach(async () => {
  browser.complaints.length = 0;
  await browser.look(1360, 900, 'light');
});

const value = (name: string) => home.text(`[role="group"][aria-label="${name}"] .value`);
/** Tells whether a canvas has more than one colour: something was drawn. */
const drawn = (selector: string) => `{
  const canvas = document.querySelector(${JSON.stringify(selector)});
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  new Set(new Uint32Array(data.buffer)).size > 2
}`;

test('the board moves while the daemon works', async () => {
  const stop = await startLoad(at, 8, 60);
  await home.open('board');
  await browser.until(`Number(document.querySelector('[aria-label="Running"] .value').textContent) === 4`);
  await browser.until(`Number(document.querySelector('[aria-label="Waiting"] .value').textContent) > 0`);
  await browser.until(`Number(document.querySelector('[aria-label="tokens/s"] .value').textContent.replace(',', '')) > 0`);
  for (const name of ['KV', 'TTFT', 'step', 'memory']) {
    await browser.until(`/\\d/.test(document.querySelector('[role="group"][aria-label="${name}"] .value').textContent)`);
  }
  await browser.until(drawn('canvas.map'));
  await browser.until(drawn('canvas.steps'));
  await browser.until("[...document.querySelectorAll('.bars span')].some((bar) => bar.style.getPropertyValue('--share') === '1')");
  await browser.until("document.querySelectorAll('.owners a').length > 0");
  await browser.until("document.querySelectorAll('.memory').length === 1");
  await new Promise((resolve) => setTimeout(resolve, Number(process.env['INFERD_BOARD_MS'] ?? 0)));
  await browser.shoot('board-light');
  await browser.look(1360, 900, 'dark');
  await browser.until(drawn('canvas.map'));
  await browser.shoot('board-dark');
  await browser.look(390, 1700, 'light');
  await browser.until(drawn('canvas.map'));
  await browser.shoot('board-narrow');
  assert.deepEqual(await home.tooWide(), []);
  await stop();
  await browser.until(`document.querySelector('[aria-label="Running"] .value').textContent === '0'`);
  assert.equal(await value('Waiting'), '0');
  assert.deepEqual(browser.complaints, []);
});

test('it asks only while it is shown', async () => {
  await home.open('board');
  await browser.until(`/\\d/.test(document.querySelector('[aria-label="Running"] .value').textContent)`);
  await browser.value("location.hash = '#/chat'");
  await browser.value("document.querySelector('[aria-label=\"Running\"] .value').textContent = 'kept'");
  await new Promise((resolve) => setTimeout(resolve, 1500));
  assert.equal(await value('Running'), 'kept');
  await browser.value("location.hash = '#/board'");
  await browser.until(`/\\d/.test(document.querySelector('[aria-label="Running"] .value').textContent)`);
});

test('a request is followed from the queue to its last token, and cancelled by its button', async () => {
  await home.open();
  await home.sayForLong();
  await browser.value("location.hash = '#/requests'");
  await browser.until("document.querySelectorAll('.list button').length === 1");
  await browser.value("document.querySelector('.list .rows a').click()");
  await browser.until("/First token/.test(document.querySelector('.detail').textContent)");
  await browser.value("document.querySelector('.list button').click()");
  await browser.until("/Cancelled/.test(document.querySelector('.detail').textContent)");
  await browser.until("document.querySelectorAll('.list button').length === 0");
  const told = await home.text('.detail');
  for (const word of ['Queued', 'Started', 'Prefill', 'First token', 'Cancelled']) assert.match(told, new RegExp(word));
  await browser.value("location.hash = '#/chat'");
  await home.answered();
  assert.match(await home.text('.turn.assistant .note'), /Stopped/);
  assert.deepEqual(browser.complaints, []);
});

test('chunks of a prompt and preemptions have their place in the timeline', async () => {
  await home.open();
  const stop = await startLoad(at, 6, 100);
  await home.set('Max tokens', '400');
  await home.say(Array.from({ length: 500 }, (_, i) => `word${i}`).join(' '));
  await home.answered();
  await stop();
  await browser.value("location.hash = '#/requests'");
  await browser.until("document.querySelectorAll('.list .rows a').length > 0");
  await browser.value("[...document.querySelectorAll('.list .rows a')].find((a) => a.closest('li').textContent.includes(' in')).click()");
  await browser.until("document.querySelectorAll('.timeline span').length > 2");
  await browser.shoot('requests-light');
  await browser.look(1360, 900, 'dark');
  await browser.shoot('requests-dark');
  await browser.look(390, 1100, 'light');
  await browser.shoot('requests-narrow');
  assert.deepEqual(await home.tooWide(), []);
  assert.deepEqual(browser.complaints, []);
});
