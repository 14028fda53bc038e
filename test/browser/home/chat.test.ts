/** The chat of the page at / in a real browser, against a daemon with the demo model. */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { Browser } from '../browser.js';
import { Home } from './home.js';

const at = await startTestDaemon();
const locked = await startTestDaemon(['auth.mode=token']);
const browser = await Browser.start();
const home = new Home(browser, at.http);
after(async () => {
  await browser.close();
  await at.close();
  await locked.close();
});
beforeEach(async () => {
  browser.complaints.length = 0;
  browser.asked.length = 0;
  await browser.look(1360, 900, 'light');
});

test('an answer is streamed, its figures are told, and nothing is asked for elsewhere', async () => {
  await home.open();
  await home.set('Temperature', '0');
  await home.say('What is 123 + 456?');
  await home.answered();
  assert.equal(await home.lastAnswer(), '123 + 456 = 579');
  assert.match(await home.text('.turn.assistant:last-of-type .meta'), /tokens\/s/);
  await home.say('What is the capital of Japan?');
  await home.answered();
  assert.match(await home.lastAnswer(), /Tokyo/);
  await browser.shoot('chat-light');
  await browser.look(1360, 900, 'dark');
  await browser.shoot('chat-dark');
  await browser.look(390, 800, 'light');
  await browser.shoot('chat-narrow');
  assert.deepEqual(await home.tooWide(), []);
  assert.deepEqual(browser.complaints, []);
  const origins = new Set(browser.asked.map((url) => new URL(url).host));
  assert.deepEqual([...origins], [new URL(at.http).host]);
});

test('Stop and Escape end an answer, in the daemon too', async () => {
  await home.open();
  for (const stop of [() => home.press('Stop'), () => browser.press('Escape')]) {
    await home.sayForLong();
    await browser.value(`document.querySelector('textarea[aria-label="Message"]').focus()`);
    await stop();
    await home.answered();
    assert.match(await home.text('.turn.assistant:last-child .note'), /Stopped/);
    await at.untilFreed();
  }
  assert.deepEqual(browser.complaints, []);
});

test('token probabilities show under the mouse and by keys', async () => {
  await home.open();
  await home.set('Temperature', '0');
  await home.check('Show token probabilities');
  await home.say('What is 123 + 456?');
  await home.answered();
  assert.match(await home.text('.tokens'), /^123 \+ 456 = 579/);
  await browser.value("document.querySelector('.tokens').focus()");
  await browser.press('ArrowRight');
  await browser.press('ArrowRight');
  assert.match(await home.text('.alternatives .chosen'), /%/);
  assert.ok(Number(await browser.value("document.querySelectorAll('.alternatives .row').length")) >= 5);
  await browser.shoot('chat-tokens');
});

test('an answer is held to a JSON schema, and a slip in one is told where it is', async () => {
  await home.open();
  await home.set('JSON schema', '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}}, "required": ["name"]');
  await home.say('Give me a name.');
  await browser.until("/is no JSON/.test(document.querySelector('.form-error').textContent)");
  assert.equal(await browser.value('document.activeElement.closest("label").textContent'), 'JSON schema');
  await home.set(
    'JSON schema',
    '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}}, "required": ["name"], "additionalProperties": false}',
  );
  await home.send();
  await home.answered();
  assert.ok('name' in (JSON.parse(await home.lastAnswer()) as object));
});

test('calls of tools are shown as calls, and a person may answer them', async () => {
  await home.open();
  const parameters = {
    type: 'object',
    properties: { city: { enum: ['Paris', 'Tokyo'] } },
    required: ['city'],
    additionalProperties: false,
  };
  await home.set('Tools as JSON', JSON.stringify([{ type: 'function', function: { name: 'get_weather', parameters } }]));
  await home.set('Tool choice', 'required');
  await home.say('What is the weather in Paris?');
  await home.answered();
  assert.match(await home.text('.call'), /get_weather[\s\S]*"city": "(?:Paris|Tokyo)"/);
  await browser.shoot('chat-call');
  await home.set('Tool choice', 'none');
  await home.set('Result of get_weather', '{"weather": "rain"}');
  await browser.value("document.querySelector('.results button').click()");
  await browser.until("document.querySelectorAll('.turn.assistant').length === 2");
  await home.answered();
  assert.match(await home.text('.turn.tool'), /rain/);
});

test('what the daemon refuses is told as its sentence', async () => {
  await home.open();
  await home.set('Max tokens', '100000');
  await home.say('Hello');
  await browser.until("document.querySelector('.turn .error') !== null");
  assert.match(await home.text('.turn .error'), /at most 4096 are allowed\. Clear the conversation/);
  await browser.shoot('chat-error');
});

test('what a model writes is inert, whatever it is', async () => {
  await home.open();
  const hostile =
    '<img src=x onerror="window.hit=1"> [a](javascript:window.hit=1) <script>window.hit=1</script>\n```html\n<svg onload=window.hit=1>\n```\nend';
  await home.set('JSON schema', JSON.stringify({ const: hostile }));
  await home.say('Hello');
  await home.answered();
  // The form made it a JSON text, so the line ends are escaped; user turns show the text as it is.
  await home.set('JSON schema', '');
  await home.say(hostile);
  await home.answered();
  assert.equal(await browser.value("document.querySelector('.log').querySelectorAll('img, script, svg, a, iframe').length"), 0);
  assert.equal(await browser.value('window.hit'), undefined);
  assert.match(await home.text('.turn.user:last-of-type, .log'), /<img src=x onerror/);
  assert.deepEqual(browser.complaints, []);
});

test('where the daemon asks for a token the page asks for it too, keeps it to itself, and says when it is wrong', async () => {
  const other = new Home(browser, locked.http);
  await browser.open(locked.http, "document.getElementById('token-box')?.hidden === false");
  assert.equal(await browser.value('document.activeElement.id'), 'token');
  await browser.type('wrong');
  await browser.press('Enter');
  await browser.until("/was refused/.test(document.getElementById('token-says').textContent)");
  await browser.value("document.getElementById('token').value = ''");
  await browser.type(locked.daemon.token ?? '');
  await browser.press('Enter');
  await other.connected();
  await other.say('What is 123 + 456?');
  await other.answered();
  const kept = await browser.value('JSON.stringify([location.href, document.cookie, localStorage.length, sessionStorage.length])');
  assert.doesNotMatch(String(kept), new RegExp(locked.daemon.token ?? 'x'));
  assert.match(String(kept), /0,0\]$/);
});
