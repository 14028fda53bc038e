/**
 * The pages for browsers: each is one HTML document with its style and script inside, so that it needs nothing from elsewhere and works
 * without a network. The sources of a page lie in a folder of its name, what pages share in shared/, as modules; they are put together
 * when the page is first asked for. Main thread.
 *
 * Its policy names the hashes of that one style and script: nothing else runs, whatever a description or an answer may hold, and nothing
 * is fetched but from the daemon that served it.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { OutgoingHttpHeaders } from 'node:http';

/** `home` is at /, `docs` at /docs. */
export type PageName = 'home' | 'docs';

export interface Page {
  readonly html: string;
  /** The value of Content-Security-Policy. */
  readonly policy: string;
}

/** The sources are no part of dist/, which holds what the compiler writes: they are read where the package has them. */
const folder = new URL('../../../../daemon/front/pages/', import.meta.url);
const IMPORT = /^import [^;]*? from '(\.\/[\w-]+\.js|\.\.\/shared\/[\w-]+\.js)';\n/gm;
/** In a style only the first file imports. */
const STYLE_IMPORT = /^@import "((?:\.|\.\.\/shared)\/[\w-]+\.css)";\n/gm;

const pages = new Map<PageName, Page>();

/** A page; its files are read once. @throws the error of the file system when they are not there */
export function readPage(name: PageName): Page {
  const page = pages.get(name) ?? assemble((file) => readFileSync(new URL(file, new URL(`${name}/`, folder)), 'utf8'));
  pages.set(name, page);
  return page;
}

/** `read`: the text of a source by its name, as the page's own sources name it. */
export function assemble(read: (name: string) => string): Page {
  const style = read('style.css').replace(STYLE_IMPORT, (_, file: string) => read(file));
  const script = joined('./main.js', read);
  const html = read('index.html')
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

/** A source names one of its own folder; `from` may itself stand in the shared one. */
function placeOf(name: string, from: string): string {
  return name.startsWith('./') && from.startsWith('../shared/') ? `../shared/${name.slice(2)}` : name;
}

/**
 * Modules as one: what a module imports stands before it, and all share one scope, in which no name is declared twice. The sources import
 * names as they are and export functions and constants, so that only these two words have to go.
 */
function joined(entry: string, read: (name: string) => string): string {
  const texts = new Map<string, string>();
  const add = (name: string): void => {
    if (texts.has(name)) return;
    const text = read(name);
    texts.set(name, '');
    for (const [, other = ''] of text.matchAll(IMPORT)) add(placeOf(other, name));
    texts.delete(name); // a Map keeps the order of insertion: behind what it imports
    texts.set(name, text.replace(IMPORT, '').replace(/^export /gm, ''));
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
