/** The pages at / and /docs: whole in themselves, under a strict policy, served to who may see them. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { type PageName, readPage } from '../../../../daemon/front/pages/page.js';
import { packageRoot } from '../../../../native/index.js';
import { rawRequest } from '../../../helpers/wire/raw-http.js';
import { withFront } from '../echo-front.js';
import { tokenAuth } from '../token-auth.js';

const sources = join(packageRoot(), 'daemon/front/pages');
const folder = join(sources, 'docs');
const names: readonly PageName[] = ['home', 'docs'];
const inside = (html: string, tag: string) => new RegExp(`<${tag}[^>]*>([\\s\\S]*?)</${tag}>`).exec(html)?.[1] ?? '';

for (const name of names) {
  const { html, policy } = readPage(name);

  test(`the page ${name} holds all of its sources and fetches nothing from elsewhere`, () => {
    const files = readdirSync(join(sources, name), { recursive: true }).map(String);
    for (const file of files.filter((one) => statSync(join(sources, name, one)).isFile())) {
      const text = readFileSync(join(sources, name, file), 'utf8');
      const body = file.endsWith('.js') ? text.replace(/^import [^;]*;\n/gm, '').replace(/^export /gm, '') : text;
      if (file !== 'index.html' && file !== 'style.css') assert.ok(html.includes(body), file);
    }
    const style = readFileSync(join(sources, name, 'style.css'), 'utf8').replace(/^@import .*\n/gm, '');
    assert.ok(inside(html, 'style').endsWith(style.split('*/').at(-1) ?? ''), 'its own rules come last');
    assert.doesNotMatch(html, /(?:src|href)="(?:https?:)?\/\//);
    assert.doesNotMatch(html, /@import|url\(|\bimport\b.*\bfrom\b/);
  });

  test(`the modules of ${name} go together: each declares its names alone, and no HTML is made of text`, () => {
    // Compiles it as a whole: a name that two modules declare, or an import that is left, would be a syntax error.
    const script = inside(html, 'script');
    assert.doesNotThrow(() => new Function(`'use strict';\n${script}`));
    assert.doesNotMatch(script, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|localStorage|sessionStorage/);
  });

  test(`the policy of ${name} allows its own style and script, its daemon, and nothing else`, () => {
    const hash = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
    const directives = Object.fromEntries(policy.split('; ').map((directive) => [directive.split(' ')[0], directive.split(' ').slice(1)]));
    assert.deepEqual(directives['default-src'], ["'none'"]);
    assert.deepEqual(directives['script-src'], [hash(inside(html, 'script'))]);
    assert.deepEqual(directives['style-src'], [hash(inside(html, 'style'))]);
    assert.deepEqual(directives['connect-src'], ["'self'"]);
    for (const none of ['base-uri', 'form-action', 'frame-ancestors']) assert.deepEqual(directives[none], ["'none'"], none);
    assert.doesNotMatch(html, / style="| on\w+="/, 'nothing that the policy forbids');
  });
}

const accepts = { home: 'Accept: text/html,application/xhtml+xml,*/*;q=0.8', docs: 'Accept: */*' };
const paths = { home: '/', docs: '/docs' };

for (const name of names) {
  test(`the page ${name} needs no token, but a Host like every other route, and can be switched off`, async () => {
    const { html, policy } = readPage(name);
    const auth = tokenAuth('right');
    const get = (port: number, ...headers: string[]) =>
      rawRequest(port, [`GET ${paths[name]} HTTP/1.1`, 'Connection: close', accepts[name], ...headers]);
    await withFront({ auth }, async (front) => {
      const reply = await get(front.port, 'Host: localhost');
      assert.equal(reply.status, 200);
      assert.equal(reply.headers.get('content-type'), 'text/html; charset=utf-8');
      assert.equal(reply.headers.get('content-security-policy'), policy);
      assert.equal(reply.headers.get('x-content-type-options'), 'nosniff');
      assert.equal(reply.headers.get('referrer-policy'), 'no-referrer');
      const fetched = await fetch(`http://127.0.0.1:${front.port}${paths[name]}`, { headers: { accept: 'text/html' } });
      assert.equal(await fetched.text(), html);
      assert.equal((await get(front.port, 'Host: evil.example')).status, 403);
      assert.equal((await get(front.port, 'Host: localhost', 'Sec-Fetch-Site: cross-site')).status, 403);
    });
    await withFront({ config: { server: { web_ui: false } } }, async (front) => {
      assert.equal((await get(front.port, 'Host: localhost')).status, name === 'home' ? 405 : 404);
    });
  });
}

test('who does not ask for HTML at / gets a text that says how to connect', async () => {
  const get = (port: number, accept: string) => rawRequest(port, ['GET / HTTP/1.1', 'Host: localhost', 'Connection: close', accept]);
  await withFront({}, async (front) => {
    for (const accept of ['Accept: */*', 'Accept: application/json', 'Accept: text/plain', 'X-None: 1']) {
      const reply = await get(front.port, accept);
      assert.equal(reply.headers.get('content-type'), 'text/plain; charset=utf-8', accept);
      assert.match(reply.headers.get('vary') ?? '', /accept/, 'caches keep the two apart');
    }
    assert.match((await get(front.port, 'Accept: text/html')).headers.get('vary') ?? '', /accept/);
  });
});

test('its reader of events gives the same events however their text is cut', async () => {
  const { eventParser } = (await import(pathToFileURL(join(folder, 'sse.js')).href)) as {
    eventParser(): { feed(text: string): string[] };
  };
  const end = fc.constantFrom('\n', '\r\n');
  const data = fc.array(
    fc.string().filter((text) => !/[\r\n]/.test(text)),
    { minLength: 1, maxLength: 3 },
  );
  fc.assert(
    fc.property(fc.array(data, { maxLength: 6 }), end, fc.array(fc.nat(200), { maxLength: 12 }), (events, eol, cuts) => {
      const text = events.map((lines) => `: a comment${eol}${lines.map((line) => `data: ${line}${eol}`).join('')}${eol}`).join('');
      const places = [...cuts.map((cut) => cut % (text.length + 1)), 0, text.length].sort((a, b) => a - b);
      const parser = eventParser();
      const got = places.slice(1).flatMap((place, i) => parser.feed(text.slice(places[i], place)));
      assert.deepEqual(
        got,
        events.map((lines) => lines.join('\n')),
      );
    }),
  );
});
