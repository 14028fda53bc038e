/**
 * Every route and every method that a daemon serves, in every mode, against every set of scopes and against nobody. Both lists are read from
 * the documents it serves, so that what is added is tried too.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { after, describe, test } from 'node:test';
import { tokensFolder } from '../../../../config/paths.js';
import { createRecord } from '../../../../daemon/front/auth/token-records.js';
import { nodeSigner, signedFetch } from '../../../../rpc/client/node.js';
import type { Scope } from '../../../../rpc/scope.js';
import { at, call } from '../../../rpc/harness.js';
import { type FakeDaemon, startFakeDaemon } from './fake-daemon.js';

interface Served {
  readonly name: string;
  /** Null: whoever was let in; "open": everybody. */
  readonly need: Scope | 'open' | null;
}
/** Headers of who asks, and what he may do; null: he is not let in. */
interface Caller {
  readonly name: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly scopes: ReadonlySet<Scope> | null;
  /** How it sends; fetch when not said. */
  readonly send?: typeof fetch;
}

/** What stops the daemon is not tried by those who may: it would work. */
const ENDS_THE_DAEMON = 'daemon.drain';

const documents = async ({ http }: FakeDaemon, headers: Caller['headers']): Promise<{ routes: Served[]; methods: Served[] }> => {
  const [openapi, openrpc] = await Promise.all(
    ['openapi', 'openrpc'].map(async (name) => (await (await fetch(`${http}/${name}.json`, { headers })).json()) as object),
  );
  const routes = Object.entries(at(openapi, 'paths') as Record<string, Record<string, object>>).flatMap(([path, verbs]) =>
    Object.entries(verbs).map(([verb, operation]): Served => {
      const open = JSON.stringify(at(operation, 'security')) === '[]';
      const scope = (at(operation, 'x-scope') as Scope | undefined) ?? null;
      return { name: `${verb.toUpperCase()} ${path.replace(/\{\w+\}$/, 'fake')}`, need: open ? 'open' : scope };
    }),
  );
  const methods = (at(openrpc, 'methods') as { name: string; 'x-scope'?: Scope }[]).map((m) => ({
    name: m.name,
    need: m['x-scope'] ?? null,
  }));
  return { routes, methods };
};

async function tryRoutes({ http }: FakeDaemon, caller: Caller, routes: readonly Served[]): Promise<void> {
  for (const { name, need } of routes) {
    const [method = '', path = ''] = name.split(' ');
    const body = method === 'GET' || method === 'DELETE' ? {} : { body: '{}' };
    const response = await (caller.send ?? fetch)(http + path, {
      method,
      headers: { 'content-type': 'application/json', ...caller.headers },
      ...body,
    });
    // Other dialects than OpenAI's have no code, or no object.
    const code = at(await response.json().catch(() => null), 'error', 'code') ?? 'none';
    const about = `${caller.name}: ${name}`;
    if (need === 'open') assert.ok(response.status < 401 || response.status > 403, about);
    else if (caller.scopes === null) assert.ok(response.status === 401 && ['invalid_api_key', 'none'].includes(String(code)), about);
    else if (need !== null && !caller.scopes.has(need)) {
      assert.ok(response.status === 403 && ['insufficient_scope', 'none'].includes(String(code)), `${about}: ${response.status} ${code}`);
    } else assert.ok(response.status !== 401 && response.status !== 403, `${about}: ${response.status}`);
  }
}

async function tryMethods({ http }: FakeDaemon, caller: Caller, methods: readonly Served[]): Promise<void> {
  for (const { name, need } of methods) {
    if (name === ENDS_THE_DAEMON && caller.scopes?.has('admin')) continue;
    const headers = { 'content-type': 'application/json', ...caller.headers };
    const response = await (caller.send ?? fetch)(`${http}/rpc`, { method: 'POST', headers, body: JSON.stringify(call(1, name, {})) });
    const about = `${caller.name}: ${name}`;
    if (caller.scopes === null) {
      assert.equal(response.status, 401, about);
      continue;
    }
    const refused = need !== null && need !== 'open' && !caller.scopes.has(need);
    const error = at(await response.json(), 'error');
    assert.equal(at(error, 'code') === -32001, refused, about);
    if (refused) assert.deepEqual(at(error, 'data'), { scope: need }, about);
  }
}

const sets: readonly (readonly Scope[])[] = [['infer'], ['metrics'], ['admin'], ['infer', 'metrics'], ['infer', 'metrics', 'admin']];

async function tryAll(at: FakeDaemon, callers: readonly Caller[], reader: Caller['headers']): Promise<void> {
  const { routes, methods } = await documents(at, reader);
  assert.ok(routes.length > 20 && methods.length > 20);
  for (const caller of callers) {
    await tryRoutes(at, caller, routes);
    await tryMethods(at, caller, methods);
  }
}

const running: FakeDaemon[] = [];
const start = async (changes: Parameters<typeof startFakeDaemon>[0]) => {
  const started = await startFakeDaemon(changes);
  // Whatever is asked is answered at once.
  const timer = setInterval(() => started.engine.finishAll(), 5);
  running.push(started);
  after(async () => {
    clearInterval(timer);
    await started.daemon.stop('the test is over');
  });
  return started;
};

describe('who may ask for what', () => {
  test('mode token: by each of three ways to show it', async () => {
    const daemon = await start({ auth: { mode: 'token' } });
    const callers: Caller[] = [
      { name: 'nobody', headers: {}, scopes: null },
      { name: 'a wrong token', headers: { authorization: 'Bearer wrong' }, scopes: null },
      { name: 'the own token', headers: { authorization: `Bearer ${daemon.own}` }, scopes: new Set(sets.at(-1)) },
    ];
    for (const [i, scopes] of sets.entries()) {
      const { token } = await daemon.token(scopes);
      const headers: Caller['headers'] = i % 2 === 0 ? { authorization: `Bearer ${token}` } : { 'x-api-key': token };
      callers.push({ name: `${Object.keys(headers)[0]} with ${scopes}`, headers, scopes: new Set(scopes) });
    }
    await tryAll(daemon, callers, { authorization: `Bearer ${daemon.own}` });
  });

  test('mode ed25519: signed requests, and the own token of the daemon; no other token', async () => {
    const daemon = await start({ auth: { mode: 'ed25519' } });
    const wrong = generateKeyPairSync('ed25519').privateKey;
    const callers: Caller[] = [
      { name: 'nobody', headers: {}, scopes: null },
      { name: 'the own token', headers: { authorization: `Bearer ${daemon.own}` }, scopes: new Set(sets.at(-1)) },
    ];
    for (const scopes of sets)
      callers.push({ name: `signed with ${scopes}`, headers: {}, scopes: new Set(scopes), send: signedFetch(await daemon.signer(scopes)) });
    callers.push({ name: 'another key', headers: {}, scopes: null, send: signedFetch(nodeSigner('key-infer', wrong)) });
    callers.push({ name: 'an unknown key', headers: {}, scopes: null, send: signedFetch(nodeSigner('nobody', wrong)) });
    mkdirSync(tokensFolder(daemon.env), { recursive: true });
    const { token } = createRecord(tokensFolder(daemon.env), { name: '', scopes: ['infer'], expiresMs: null }, Date.now());
    callers.push({ name: 'a token', headers: { authorization: `Bearer ${token}` }, scopes: null });
    await tryAll(daemon, callers, { authorization: `Bearer ${daemon.own}` });
  });

  test('both modes: either credential suffices', async () => {
    const daemon = await start({ auth: { mode: ['token', 'ed25519'] } });
    const { token } = await daemon.token(['infer']);
    const send = signedFetch(await daemon.signer(['admin']));
    await tryAll(
      daemon,
      [
        { name: 'nobody', headers: {}, scopes: null },
        { name: 'a token', headers: { authorization: `Bearer ${token}` }, scopes: new Set(['infer']) },
        { name: 'a signature', headers: {}, scopes: new Set(['admin']), send },
        { name: 'a signature and a wrong token', headers: { authorization: 'Bearer x' }, scopes: new Set(['admin']), send },
      ],
      { authorization: `Bearer ${daemon.own}` },
    );
  });

  test('mode none: programs and the own page do all, a page of another origin all but admin', async () => {
    const daemon = await start({ auth: { mode: 'none', allowed_origins: ['https://app.example'] } });
    const all = new Set(sets.at(-1));
    await tryAll(
      daemon,
      [
        { name: 'a program', headers: {}, scopes: all },
        { name: 'a program with a token', headers: { authorization: 'Bearer x' }, scopes: all },
        { name: 'the own page', headers: { origin: daemon.http }, scopes: all },
        { name: 'another page', headers: { origin: 'https://app.example' }, scopes: new Set(['infer', 'metrics']) },
      ],
      {},
    );
  });
});
