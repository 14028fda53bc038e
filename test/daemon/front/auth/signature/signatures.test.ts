/** Signed requests: RFC 9421's own example, and everything that must be refused. */
import assert from 'node:assert/strict';
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, sign, verify } from 'node:crypto';
import { describe, test } from 'node:test';
import type { Admission, AuthRequest } from '../../../../../daemon/front/auth/admission.js';
import { Credential } from '../../../../../daemon/front/auth/credential.js';
import type { KnownKey } from '../../../../../daemon/front/auth/keys.js';
import { parseContentDigest } from '../../../../../daemon/front/auth/signature/content-digest.js';
import { Nonces } from '../../../../../daemon/front/auth/signature/nonces.js';
import { parseSignature, parseSignatureInput, SignatureFault } from '../../../../../daemon/front/auth/signature/signature-input.js';
import { Signatures } from '../../../../../daemon/front/auth/signature/signatures.js';
import { nodeSigner } from '../../../../../rpc/client/node.js';
import { allScopes } from '../../../../../rpc/scope.js';
import { paramsText, type SignatureParams, signatureBase } from '../../../../../rpc/signature/base.js';
import { signatureHeaders } from '../../../../../rpc/signature/sign.js';

describe('the example of RFC 9421, B.2.6', () => {
  const headers: Readonly<Record<string, string>> = {
    date: 'Tue, 20 Apr 2021 02:07:55 GMT',
    'content-type': 'application/json',
    'content-length': '18',
  };
  const parts = {
    method: 'POST',
    authority: 'example.com',
    path: '/foo',
    query: '?param=Value&Pet=dog',
    header: (name: string) => headers[name] ?? null,
  };
  const written = '("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"';
  const signature = 'wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==';
  const publicKey = createPublicKey(
    '-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----',
  );
  const privateKey = createPrivateKey(
    '-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----',
  );
  const input = parseSignatureInput(`sig-b26=${written}`);
  const base = signatureBase(input.components, input.written, parts) ?? '';

  test('its base is made, and its signature is right over it', () => {
    assert.equal(input.written, written);
    assert.equal(
      base,
      [
        '"date": Tue, 20 Apr 2021 02:07:55 GMT',
        '"@method": POST',
        '"@path": /foo',
        '"@authority": example.com',
        '"content-type": application/json',
        '"content-length": 18',
        `"@signature-params": ${written}`,
      ].join('\n'),
    );
    const bytes = parseSignature(`sig-b26=:${signature}:`, 'sig-b26');
    assert.ok(verify(null, Buffer.from(base), publicKey, bytes));
    assert.ok(!verify(null, Buffer.from(base.replace('POST', 'GET')), publicKey, bytes));
  });

  test('our signer makes the same bytes', async () => {
    const made = await nodeSigner('test-key-ed25519', privateKey).sign(new TextEncoder().encode(base));
    assert.equal(Buffer.from(made).toString('base64'), signature);
  });
});

const { publicKey, privateKey } = generateKeyPairSync('ed25519');
const START_S = 1_800_000_000;
const required = ['@method', '@authority', '@path', '@query'];

/** A daemon's side with one key, and a clock. */
function setup(maxNonces = 100) {
  const clock = { s: START_S };
  const known: KnownKey = { key: publicKey, credential: new Credential('key a', allScopes), nonces: new Nonces(maxNonces), text: '' };
  const signatures = new Signatures({ keys: { get: (keyid) => (keyid === 'a' ? known : null) }, now: () => clock.s });
  clock.s += 1000;
  return { clock, known, signatures };
}

interface Wish {
  readonly method?: string;
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly components?: readonly string[];
  readonly params?: Readonly<Record<string, string | number | null>>;
}
let nonces = 0;

/** A signed request by hand, as another program might make it: not by the code that the client uses. */
function signed(
  nowS: number,
  wish: Wish = {},
): AuthRequest & { readonly method: string; readonly url: string; readonly headers: Record<string, string> } {
  const { method = 'POST', url = '/v1/chat/completions?x=1', body = '{"a":1}' } = wish;
  const digest = `sha-256=:${createHash('sha256').update(body).digest('base64')}:`;
  const own = body === '' ? {} : { 'content-length': String(body.length), 'content-digest': digest };
  const headers: Record<string, string> = { host: '127.0.0.1:8765', ...own, ...wish.headers };
  const components = wish.components ?? (body === '' ? required : [...required, 'content-digest']);
  const all = { created: Math.floor(nowS), nonce: `the-nonce-${nonces++}`, keyid: 'a', alg: 'ed25519', ...wish.params };
  const params = Object.entries(all).filter((pair): pair is [string, string | number] => pair[1] !== null);
  const [path = '', query = ''] = url.split('?');
  const value = (name: string) =>
    ({ '@method': method, '@authority': headers['host']?.toLowerCase(), '@path': path, '@query': `?${query}` })[name] ??
    headers[name] ??
    '';
  const written = paramsText(components, params as SignatureParams);
  const base = [...components.map((name) => `"${name}": ${value(name)}`), `"@signature-params": ${written}`].join('\n');
  const signature = sign(null, Buffer.from(base), privateKey).toString('base64');
  return { method, url, headers: { ...headers, 'signature-input': `sig1=${written}`, signature: `sig1=:${signature}:` } };
}

/** 200, or the status of the refusal and its sentence. */
async function judged(admission: Promise<Admission>): Promise<string> {
  const result = await admission;
  return 'peer' in result ? '200' : `${result.refusal.status} ${result.refusal.message}`;
}

describe('a signed request', () => {
  test('is let in with the scopes of its key and the digest of its body; one without a body needs no digest', async () => {
    const { clock, signatures } = setup();
    const admission = await signatures.admit(signed(clock.s));
    assert.ok('peer' in admission);
    assert.equal(admission.peer.scopes, allScopes);
    assert.deepEqual(admission.peer.bodyDigest, createHash('sha256').update('{"a":1}').digest());
    const bare = await signatures.admit(signed(clock.s, { method: 'GET', url: '/v1/models', body: '' }));
    assert.ok('peer' in bare && bare.peer.bodyDigest === null);
    const empty = `sha-256=:${createHash('sha256').digest('base64')}:`;
    const told = signed(clock.s, {
      method: 'GET',
      body: '',
      headers: { 'content-digest': empty },
      components: [...required, 'content-digest'],
    });
    const toldBare = await signatures.admit(told);
    assert.ok('peer' in toldBare && toldBare.peer.bodyDigest !== null);
  });

  test('made by the client is let in, with and without a body, over ws and http', async () => {
    for (const [url, body] of [
      ['http://127.0.0.1:8765/v1/x?a=b%20c', 'text'],
      ['http://LOCALHOST:80/', null],
      ['ws://127.0.0.1:8765', null],
    ] as const) {
      const at = new URL(url);
      const bytes = body === null ? null : new TextEncoder().encode(body);
      const made = await signatureHeaders(nodeSigner('a', privateKey), { method: 'POST', url: at, body: bytes });
      const later = new Signatures({ keys: { get: () => setup().known }, now: oneLater() });
      const headers = { host: at.host, ...made, ...(bytes === null ? {} : { 'content-length': String(bytes.length) }) };
      assert.equal(await judged(later.admit({ method: 'POST', url: at.pathname + at.search, headers })), '200', url);
    }
  });

  test('is refused when anything that it covers was altered', async () => {
    const { clock, signatures } = setup();
    const changes: readonly (readonly [string, (r: ReturnType<typeof signed>) => AuthRequest])[] = [
      ['method', (r) => ({ ...r, method: 'PUT' })],
      ['path', (r) => ({ ...r, url: r.url.replace('chat', 'chut') })],
      ['percent signs of the path', (r) => ({ ...r, url: r.url.replace('chat', '%63hat') })],
      ['query', (r) => ({ ...r, url: `${r.url}&y=2` })],
      ['no query', (r) => ({ ...r, url: r.url.split('?')[0] ?? '' })],
      ['authority', (r) => ({ ...r, headers: { ...r.headers, host: 'localhost:8765' } })],
      ['port', (r) => ({ ...r, headers: { ...r.headers, host: '127.0.0.1:8766' } })],
      ['digest', (r) => ({ ...r, headers: { ...r.headers, 'content-digest': `sha-256=:${Buffer.alloc(32).toString('base64')}:` } })],
      [
        'created',
        (r) => ({
          ...r,
          headers: { ...r.headers, 'signature-input': r.headers['signature-input']!.replace(/created=(\d+)\d/, 'created=$15') },
        }),
      ],
      ['nonce', (r) => ({ ...r, headers: { ...r.headers, 'signature-input': r.headers['signature-input']!.replace('nonce-', 'nonse-') } })],
      [
        'order',
        (r) => ({
          ...r,
          headers: {
            ...r.headers,
            'signature-input': r.headers['signature-input']!.replace('"@method" "@authority"', '"@authority" "@method"'),
          },
        }),
      ],
      [
        'signature',
        (r) => ({
          ...r,
          headers: { ...r.headers, signature: r.headers['signature']!.replace(/:(.)/, (_, c) => `:${c === 'A' ? 'B' : 'A'}`) },
        }),
      ],
    ];
    for (const [what, change] of changes) {
      assert.match(await judged(signatures.admit(change(signed(clock.s + 0.5)))), /^401 The signature is not right/, what);
    }
  });

  test('is refused with an unknown key, another algorithm, a missing component or parameter, or one that stands twice', async () => {
    const { clock, signatures } = setup();
    const wishes: readonly (readonly [Wish, RegExp])[] = [
      [{ params: { keyid: 'b' } }, /not right, or its key is not known/],
      [{ params: { keyid: null } }, /keyid/],
      [{ params: { alg: 'hmac-sha256' } }, /alg="ed25519"/],
      [{ params: { alg: null } }, /alg="ed25519"/],
      [{ params: { nonce: null } }, /nonce/],
      [{ params: { nonce: 'short' } }, /nonce/],
      [{ params: { nonce: 'x'.repeat(129) } }, /nonce/],
      [{ params: { nonce: 12345678 } }, /nonce/],
      [{ params: { created: null } }, /when it was created/],
      [{ params: { created: 'now' } }, /when it was created/],
      [{ params: { wibble: 1 } }, /wibble/],
      ...required.map((name): readonly [Wish, RegExp] => [
        { components: [...required.filter((n) => n !== name), 'content-digest'] },
        /must cover @/,
      ]),
      [{ components: required }, /must cover content-digest/],
      [{ components: [...required, 'content-digest', '@method'] }, /component twice/],
      [{ components: [...required, 'content-digest', 'x-absent'] }, /does not have/],
      [{ components: [...required, 'content-digest', '@target-uri'] }, /does not have/],
      [{ headers: { 'content-digest': 'sha-512=:AAAA:' } }, /Content-Digest must be/],
    ];
    for (const [wish, sentence] of wishes) {
      const answer = await judged(signatures.admit(signed(clock.s, wish)));
      assert.match(answer, /^401 /, JSON.stringify(wish));
      assert.match(answer, sentence, JSON.stringify(wish));
    }
  });

  test('is refused when its headers hold several signatures, or cannot be read', async () => {
    const { clock, signatures } = setup();
    const good = signed(clock.s).headers;
    const [input, signature] = [good['signature-input']!, good['signature']!];
    const broken: readonly (readonly [string | undefined, string | undefined])[] = [
      [undefined, signature],
      [input, undefined],
      [`${input}, ${input.replace('sig1', 'sig2')}`, `${signature}, ${signature.replace('sig1', 'sig2')}`],
      [`${input}, ${input}`, `${signature}, ${signature}`],
      [input, `${signature}, ${signature.replace('sig1', 'sig2')}`],
      [input, signature.replace('sig1', 'sig2')],
      [`${input};nonce="another-one"`, signature],
      [`${input};created=1`, signature],
      [input.replace('"@method"', '"@method";req'), signature],
      [input.replace('(', '(('), signature],
      [input.replace(')', ''), signature],
      [input.replace('"@method"', '@method'), signature],
      ['', ''],
      ['sig1', 'sig1'],
      [input, 'sig1=::'],
      [input, 'sig1=:!:'],
      [`${input};x=1.5`, signature],
      [`${input};x=?1`, signature],
      [`sig1=(${'"a" '.repeat(40)})`, signature],
    ];
    for (const [a, b] of broken) {
      const headers = { ...good, 'signature-input': a, signature: b };
      assert.match(await judged(signatures.admit({ method: 'POST', url: '/v1/chat/completions?x=1', headers })), /^401 /, `${a} / ${b}`);
    }
    assert.equal(
      await judged(signatures.admit({ method: 'POST', url: '/v1/chat/completions?x=1', headers: good })),
      '200',
      'nothing of that used it up',
    );
  });

  test('counts once, also when it comes twice at the same time', async () => {
    const { clock, signatures, known } = setup();
    const request = signed(clock.s);
    const answers = await Promise.all([1, 2, 3].map(() => judged(signatures.admit(request))));
    assert.deepEqual(answers.sort(), [
      '200',
      '401 A request with this nonce has come before.',
      '401 A request with this nonce has come before.',
    ]);
    clock.s += 59;
    assert.match(await judged(signatures.admit(request)), /nonce has come before/);
    clock.s += 2;
    assert.match(await judged(signatures.admit(request)), /created 61 s from now/);
    assert.equal(await judged(signatures.admit(signed(clock.s))), '200');
    assert.equal(known.nonces.size, 1, 'the old nonce is forgotten');
  });

  test('counts within a minute of its time, either way, and never from before the start', async () => {
    const { clock, signatures } = setup();
    for (const [skew, right] of [
      [-61, 401],
      [-60, 200],
      [0, 200],
      [60, 200],
      [61, 401],
    ] as const)
      assert.match(await judged(signatures.admit(signed(clock.s + skew))), new RegExp(`^${right}`), String(skew));
    clock.s = START_S + 5;
    assert.match(await judged(signatures.admit(signed(START_S))), /before this daemon started/);
    assert.match(await judged(signatures.admit(signed(START_S - 30))), /before this daemon started/);
    assert.equal(await judged(signatures.admit(signed(START_S + 1))), '200');
    assert.match(await judged(signatures.admit(signed(clock.s, { params: { expires: clock.s - 1 } }))), /expired/);
    assert.equal(await judged(signatures.admit(signed(clock.s, { params: { expires: clock.s + 1 } }))), '200');
  });

  test('of a key that has used up its nonces is refused with 429, until they have expired', async () => {
    const { clock, signatures } = setup(3);
    for (let i = 0; i < 3; i++) assert.equal(await judged(signatures.admit(signed(clock.s))), '200');
    const full = await signatures.admit(signed(clock.s));
    assert.ok('refusal' in full && full.refusal.status === 429 && full.refusal.headers?.['retry-after'] === '1');
    clock.s += 61;
    assert.equal(await judged(signatures.admit(signed(clock.s))), '200');
  });

  test('of a key that was removed is refused', async () => {
    const { clock, signatures, known } = setup();
    known.credential.end();
    assert.match(await judged(signatures.admit(signed(clock.s))), /^401/);
  });
});

test('Content-Digest is one sha-256, whatever stands beside it', () => {
  const right = `sha-256=:${Buffer.alloc(32, 7).toString('base64')}:`;
  assert.deepEqual(parseContentDigest(right), Buffer.alloc(32, 7));
  assert.deepEqual(parseContentDigest(`sha-512=:AAAA:, ${right}`), Buffer.alloc(32, 7));
  for (const wrong of [
    '',
    'sha-256',
    'sha-256=AAAA',
    'sha-256=:AAAA:',
    `${right}, ${right}`,
    `${right},`,
    'SHA-256=:AAAA:',
    'sha-512=:AAAA:',
  ])
    assert.throws(() => parseContentDigest(wrong), SignatureFault, wrong);
});

/** A clock that is late at its first reading, which is the start of the daemon: what was made just now counts. */
function oneLater(): () => number {
  let first = true;
  return () => {
    const now = Date.now() / 1000 + (first ? -10 : 0);
    first = false;
    return now;
  };
}
