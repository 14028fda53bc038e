/**
 * The pages for browsers: each is one HTML document with its style and script inside, so that it needs nothing from elsewhere and works
 * without a network. The sources of a page lie in a folder of its name, with rooms for its parts, what pages share in shared/, as modules;
 * they are put together when the page is first asked for. Main thread.
 *
 * Its policy names the hashes of that one style and script: nothing else runs, whatever a description or an answer may hold, and nothing
 * is fetched but from the daemon that served it.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { OutgoingHttpHeaders } from 'node:http';
import { posix } from 'node:path';

/** `home` is at /, `docs` at /docs. */
export type PageName = 'home' | 'docs';

export interface Page {
  readonly html: string;
  /** The value of Content-Security-Policy. */
  readonly policy: string;
}

/** The sources are no part of dist/, which holds what the compiler writes: they are read where the package has them. */
const folder = new URL('../../../../daemon/front/pages/', import.meta.url);
const IMPORT = /^import [^;]*? from '(\.{1,2}\/[\w./-]+\.js)';\n/gm;
/** In a style only the first file imports. */
const STYLE_IMPORT = /^@import "(\.{1,2}\/[\w./-]+\.css)";\n/gm;

const pages = new Map<PageName, Page>();

/** A page; its files are read once. @throws the error of the file system when they are not there */
export function readPage(name: PageName): Page {
  const page = pages.get(name) ?? assemble(name);
  pages.set(name, page);
  return page;
}

/** The text of a source, by its place in this folder. */
const read = (place: string): string => readFileSync(new URL(place, folder), 'utf8');

function assemble(name: PageName): Page {
  const style = read(`${name}/style.css`).replace(STYLE_IMPORT, (_, file: string) => read(posix.join(name, file)));
  const script = joined(`${name}/main.js`);
  const html = read(`${name}/index.html`)
    .replace('/* style */', () => style)
    .replace('/* script */', () => script);
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(script)}'`,
    `style-src '${hashOf(style)}'`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ].join('; ');
  return { html, policy };
}

/**
 * Modules as one: what a module imports stands before it, and all share one scope, in which no name is declared twice. The sources import
 * names as they are and export functions and constants, so that only these two words have to go.
 */
function joined(entry: string): string {
  const texts = new Map<string, string>();
  const add = (place: string): void => {
    if (texts.has(place)) return;
    const text = read(place);
    texts.set(place, '');
    for (const [, other = ''] of text.matchAll(IMPORT)) add(posix.join(posix.dirname(place), other));
    texts.delete(place); // a Map keeps the order of insertion: behind what it imports
    texts.set(place, text.replace(IMPORT, '').replace(/^export /gm, ''));
  };
  add(entry);
  return [...texts.values()].join('\n');
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}

/** What else a browser is told: the page stands alone, and its address goes nowhere. */
export function pageHeaders(policy: string): OutgoingHttpHeaders {
  return {
    'content-security-policy': policy,
    'referrer-policy': 'no-referrer',
    'x-frame-options': 'DENY',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
  };
}
