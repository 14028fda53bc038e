/** The page at / for those who do not see it, or use no mouse: names, landmarks, the way of the Tab key, contrast in both themes. */
import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { startTestDaemon } from '../../helpers/daemon/daemon.js';
import { Browser } from '../browser.js';
import { Home } from './home.js';

const at = await startTestDaemon();
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

const parts = ['chat', 'board', 'requests', 'models'] as const;

/** A conversation with all that one can have: an answer, its tokens, a call, an error. */
async function converse(): Promise<void> {
  await home.set('Temperature', '0');
  await home.say('What is 123 + 456?');
  await home.answered();
  await home.check('Show token probabilities');
  await home.say('What is the capital of Japan?');
  await home.answered();
  await browser.value("document.querySelector('.tokens').focus()");
  await browser.press('ArrowRight');
  await home.set('Tools as JSON', '[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]');
  await home.set('Tool choice', 'required');
  await home.say('What is the weather in Paris?');
  await home.answered();
  await home.set('Tools as JSON', '');
  await home.set('Max tokens', '100000');
  await home.say('Hello');
  await browser.until("document.querySelector('.turn .error') !== null && document.querySelector('button.stop').disabled");
}

/** Shows a part with something in it. */
async function show(part: (typeof parts)[number]): Promise<void> {
  await browser.value(`location.hash = '#/${part}'`);
  if (part === 'board') await browser.until('/\\d/.test(document.querySelector(\'[aria-label="memory"] .value\').textContent)');
  if (part === 'requests') {
    await browser.until("document.querySelectorAll('.list .rows a').length > 0");
    await browser.value("[...document.querySelectorAll('.list .rows a')].at(-1).click()"); // the oldest: it was answered
    await browser.until("document.querySelector('.timeline') !== null");
  }
  if (part === 'models') await browser.until("document.querySelector('.model .chip')?.textContent === 'ready'");
  await browser.value("document.querySelectorAll('details').forEach((box) => { box.open = true; })");
}

test('controls, figures and landmarks have the names that people say', async () => {
  await home.open();
  const has = async (role: string, ...names: readonly string[]): Promise<void> => {
    const tree = await browser.accessible();
    for (const name of names)
      assert.ok(
        tree.some((node) => node.role === role && node.name === name),
        `${role} "${name}"`,
      );
  };
  await has('textbox', 'Message', 'System prompt', 'Stop strings');
  await has('button', 'Send', 'Stop', 'Clear', 'Settings');
  await has('combobox', 'Model');
  await has('spinbutton', 'Temperature', 'Max tokens', 'Top p', 'Seed');
  await has('tab', 'Chat', 'Board', 'Requests', 'Models');
  await has('tabpanel', 'Chat');
  await has('log', 'Conversation');
  for (const role of ['banner', 'main', 'complementary'])
    assert.ok(
      (await browser.accessible()).some((node) => node.role === role),
      role,
    );
  await show('board');
  await has('group', 'Running', 'Waiting', 'KV', 'tokens/s', 'TTFT', 'step', 'memory');
  await show('models');
  await has('textbox', 'Model to pull');
  await has('button', 'Pull', 'Unload demo');
  const nameless = (await browser.accessible()).filter(
    ({ role, name }) => /^(button|link|textbox|combobox|checkbox|spinbutton)$/.test(role) && name === '',
  );
  assert.deepEqual(nameless, []);
});

test('the answer is told to those who hear the page when it is there, not letter by letter', async () => {
  await home.open();
  await home.set('Temperature', '0');
  await home.say('What is 123 + 456?');
  await home.answered();
  assert.equal(await home.text('[aria-live="polite"]'), '123 + 456 = 579');
  assert.equal(await browser.value("document.querySelector('.log').getAttribute('aria-live')"), 'off');
});

test('Tab reaches every control of every part, and the arrows the other parts', async () => {
  await home.open();
  await converse();
  for (const part of parts) {
    await show(part);
    const wanted = await browser.value(`{
      const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')];
      window.wanted = all.filter((node) => !node.disabled && node.tabIndex >= 0 && node.checkVisibility() && !node.matches('.skip'));
      document.activeElement.blur();
      window.reached = new Set();
      window.wanted.length;
    }`);
    for (let i = 0; i < Number(wanted) + 12; i++) {
      await browser.press('Tab');
      await browser.value('window.reached.add(document.activeElement)');
    }
    const missed = await browser.value(
      'window.wanted.filter((node) => node.isConnected && !window.reached.has(node)).map((node) => node.outerHTML.slice(0, 120))',
    );
    assert.deepEqual(missed, [], part);
  }
  await browser.value("document.getElementById('tab-models').focus()");
  for (const next of ['chat', 'board', 'requests', 'models']) {
    await browser.press('ArrowRight');
    await browser.until(`document.activeElement.id === 'tab-${next}' && !document.getElementById('${next}').hidden`);
  }
});

/** Texts whose contrast with what lies behind them is below 4.5, as a list in the page. */
const faint = `(() => {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const layers = [];
    for (let at = node; at !== null; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const ratio = (node, colour) => {
    const back = behind(node);
    const [a, b] = [light(over(rgba(colour), back)), light(back)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const found = [];
  let looked = 0;
  const look = (node, colour, what) => {
    looked++;
    const got = ratio(node, colour);
    if (got < 4.5) found.push(got.toFixed(2) + ' ' + what + ' in ' + node.outerHTML.slice(0, 90));
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { parentElement: node, data } = walker.currentNode;
    if (data.trim() === '' || !node.checkVisibility({ visibilityProperty: true }) || node.closest('script, style, noscript')) continue;
    look(node, getComputedStyle(node).color, data.trim().slice(0, 30));
  }
  for (const node of document.querySelectorAll('input, textarea, select')) {
    if (!node.checkVisibility()) continue;
    look(node, getComputedStyle(node).color, 'value');
    if (node.placeholder) look(node, getComputedStyle(node, '::placeholder').color, 'placeholder');
  }
  return { found, looked };
})()`;

test('all text has a contrast of at least 4.5 in both themes, by the system and by the switch', async () => {
  await home.open();
  await converse();
  for (const part of parts) {
    await show(part);
    for (const theme of ['light', 'dark'] as const) {
      await browser.look(1360, 900, theme);
      const { found, looked } = (await browser.value(faint)) as { found: string[]; looked: number };
      assert.deepEqual(found, [], `${part}, ${theme}`);
      assert.ok(looked > 15, `${part} has text`);
    }
  }
  const dark = "document.documentElement.dataset.theme === 'dark'";
  await browser.look(1360, 900, 'light');
  while ((await browser.value(dark)) !== true) await browser.click('#theme');
  assert.equal(await browser.value("matchMedia('(prefers-color-scheme: dark)').matches"), false);
  assert.deepEqual(((await browser.value(faint)) as { found: string[] }).found, []);
  assert.match(String(await browser.value('getComputedStyle(document.body).backgroundColor')), /^rgb\((?:[0-4]?\d, ){2}[0-4]?\d\)$/);
});

test('nothing moves while an answer grows, and the end stays in view until the reader scrolls up', async () => {
  await browser.look(900, 500, 'light');
  await home.open();
  await browser.value(`{
    window.shifts = 0;
    new PerformanceObserver((list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts += one.value; }).observe({ type: 'layout-shift', buffered: false });
    true;
  }`);
  const box = "document.querySelector('.log')";
  await home.set('Temperature', '0');
  for (const animal of ['fox', 'hare', 'bear', 'owl', 'cat']) {
    await home.say(`Tell me a story about a ${animal}.`);
    await home.answered();
  }
  assert.equal(await browser.value(`${box}.scrollHeight > ${box}.clientHeight`), true, 'there is something to scroll');
  assert.equal(await browser.value('document.documentElement.scrollHeight > innerHeight'), false, 'the window itself does not scroll');
  const rest = `${box}.scrollHeight - ${box}.scrollTop - ${box}.clientHeight`;
  assert.ok(Number(await browser.value('window.shifts')) < 0.1, String(await browser.value('window.shifts')));
  await browser.until(`${rest} < 60`);
  await browser.value(`${box}.scrollTop = 0`);
  await browser.until(`${box}.scrollTop === 0`);
  assert.deepEqual(browser.complaints, []);
});

test('inline scripts and styles do not run here', async () => {
  await home.open();
  await browser.value(`{
    const script = document.createElement('script');
    let refused = '';
    try { script.textContent = 'window.hit = 1'; document.body.append(script); } catch (error) { refused = error.name; }
    window.refused = refused;
  }`);
  assert.equal(await browser.value('window.hit'), undefined);
  await browser.value("document.body.setAttribute('style', 'color: rgb(1, 2, 3)')");
  assert.notEqual(await browser.value('getComputedStyle(document.body).color'), 'rgb(1, 2, 3)');
  const other = await browser.value("fetch('http://127.0.0.1:9/').then(() => 'went', () => 'refused')");
  assert.equal(other, 'refused');
  assert.ok(browser.complaints.length > 0, 'the policy is what stopped them');
});
