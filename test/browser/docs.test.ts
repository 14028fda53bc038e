/** The page at /docs in a real browser, against a daemon with the demo model. */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { Browser } from './browser.js';

const at = await startTestDaemon();
const locked = await startTestDaemon(['auth.mode=token']);
const browser = await Browser.start();
after(async () => {
  await browser.close();
  await at.close();
  await locked.close();
});
beforeEach(() => browser.look(1360, 900, 'light'));

const home = `${at.http}/docs`;
const text = (selector: string) => browser.value(`document.querySelector(${JSON.stringify(selector)})?.textContent ?? ''`);
const shown = "document.querySelector('.cards, .try') !== null";
const open = (hash = '', page = home) => browser.open(`${page}#/${hash}`, shown);

test('the first page lists every route and method, and nothing breaks its policy', async () => {
  await open();
  const document = (await (await fetch(`${at.http}/openapi.json`)).json()) as { paths: Record<string, object> };
  const routes = Object.values(document.paths).reduce((sum, item) => sum + Object.keys(item).length, 0);
  assert.equal(await browser.value('document.querySelectorAll(\'.cards a[href^="#/http/"]\').length'), routes);
  assert.ok(Number(await browser.value('document.querySelectorAll(\'.cards a[href^="#/rpc/"]\').length')) > 20);
  await browser.shoot('home-light');
  await browser.look(1360, 900, 'dark');
  await browser.shoot('home-dark');
  assert.deepEqual(browser.complaints, []);
});

test('a chat completion is streamed into the page', async () => {
  await open('http/chat.completions.create');
  await browser.shoot('chat-light');
  await browser.value("{ const s = document.querySelector('.try select'); s.value = 'Streamed'; s.dispatchEvent(new Event('change')); }");
  await browser.click('.try .primary');
  await browser.until("/whole after/.test(document.querySelector('.status').textContent)");
  assert.equal(await text('.answer'), '123 + 456 = 579');
  assert.equal(await browser.value("[...document.querySelectorAll('.events li')].at(-1).textContent"), '[DONE]');
  await browser.shoot('chat-streamed-light');
  await browser.look(1360, 900, 'dark');
  await browser.shoot('chat-streamed-dark');
  await browser.look(390, 800, 'light');
  await browser.shoot('chat-narrow');
  assert.deepEqual(browser.complaints, []);
});

test('a method is called over WebSocket, with its progress', async () => {
  await open('rpc/chat.completions.create');
  await browser.value("{ const s = document.querySelector('.try select'); s.value = 'Streamed'; s.dispatchEvent(new Event('change')); }");
  await browser.click('.try .primary');
  await browser.until("/result/.test(document.querySelector('.status').textContent)");
  assert.equal(await text('.answer'), '123 + 456 = 579');
  assert.match(String(await text('.events li')), /"seq":0/);
  assert.match(String(await text('.output > div:last-child')), /"finish_reason": "stop"/);
  await browser.shoot('rpc-streamed-light');
});

test('a call that is stopped is cancelled', async () => {
  await open('rpc/completions.create');
  const params = { prompt: 'Once upon a time', max_tokens: 1500, ignore_eos: true, stream: true };
  await browser.value(
    `{ const a = document.querySelector('textarea'); a.value = ${JSON.stringify(JSON.stringify(params))}; a.dispatchEvent(new Event('input')); }`,
  );
  await browser.click('.try .primary');
  await browser.until("document.querySelector('.answer').textContent.length > 20");
  await browser.value("[...document.querySelectorAll('.try button')].find((b) => b.textContent === 'Stop').click()");
  await browser.until("/-32800/.test(document.querySelector('.status').textContent)");
  await at.untilFreed();
});

test('the feed of a subscription is shown until it is stopped', async () => {
  await open('rpc/stats.subscribe');
  await browser.click('.try .primary');
  await browser.until("/stats.update/.test(document.querySelector('.events').textContent)");
  await browser.value("[...document.querySelectorAll('.try button')].find((b) => b.textContent === 'Stop').click()");
  await browser.until("/is ended/.test(document.querySelector('.status').textContent)");
});

test('what is wrong is said: text that is no JSON, and an error of the daemon', async () => {
  await open('http/tokenize');
  const put = (body: string) =>
    browser.value(
      `{ const a = document.querySelector('textarea'); a.value = ${JSON.stringify(body)}; a.dispatchEvent(new Event('input')); }`,
    );
  await put('{');
  await browser.click('.try .primary');
  await browser.until("/no JSON/.test(document.querySelector('.status').textContent)");
  await put('{"prompt": 5}');
  await browser.click('.try .primary');
  await browser.until("/^400.*whole/.test(document.querySelector('.status').textContent)");
  assert.match(String(await text('.output > div:last-child')), /invalid_request_error/);
  await browser.shoot('error-light');
  await open('http/profile.start');
  assert.match(String(await text('.notes')), /needs admin scope/);
  await browser.click('.try .primary');
  await browser.until("/^200.*whole/.test(document.querySelector('.status').textContent)");
});

test('it can be used by keys alone', async () => {
  await open();
  await browser.press('/');
  assert.equal(await browser.value('document.activeElement.id'), 'filter');
  await browser.type('detok');
  await browser.press('ArrowDown');
  await browser.press('Enter');
  await browser.until("document.querySelector('h1 code')?.textContent === '/detokenize'");
  assert.equal(await browser.value('document.activeElement.id'), 'main');
  await browser.value("document.querySelector('textarea').focus()");
  await browser.press('Enter', 2);
  await browser.until("/^200.*whole/.test(document.querySelector('.status').textContent)");
  assert.match(String(await text('.output > div:last-child')), /"prompt"/);
});

test('where the daemon asks for a token, the page asks for it too and keeps it to itself', async () => {
  const page = `${locked.http}/docs`;
  await browser.open(page, "/asks for a token/.test(document.querySelector('h1')?.textContent ?? '')");
  await browser.shoot('token-light');
  assert.equal(await browser.value('document.activeElement.id'), 'token');
  await browser.type(locked.daemon.token ?? '');
  await browser.press('Enter');
  await browser.until(shown);
  await browser.value("location.hash = '#/rpc/daemon.info'");
  await browser.until("document.querySelector('h1 code')?.textContent === 'daemon.info'");
  await browser.click('.try .primary');
  await browser.until("/^result/.test(document.querySelector('.status').textContent)");
  const kept = await browser.value('JSON.stringify([location.href, document.cookie, localStorage.length, sessionStorage.length])');
  assert.doesNotMatch(String(kept), new RegExp(locked.daemon.token ?? 'x'));
  assert.match(String(kept), /0,0\]$/);
  await browser.look(390, 800, 'dark');
  await browser.shoot('rpc-narrow-dark');
  await browser.open(page, "/asks for a token/.test(document.querySelector('h1')?.textContent ?? '')");
});
