/** A daemon with all of its routes and methods and an engine without threads, for tests of who may ask for what. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { silentLog } from '../../../../actors/runtime/log.js';
import { keysFolder, readDaemonFile, tokensFolder } from '../../../../config/paths.js';
import { type Daemon, startDaemon } from '../../../../daemon/daemon.js';
import { addKey } from '../../../../daemon/front/auth/key-records.js';
import { createRecord } from '../../../../daemon/front/auth/token-records.js';
import { nodeSigner, type Signer, signedFetch } from '../../../../rpc/client/node.js';
import type { Scope } from '../../../../rpc/scope.js';
import { FakeEngineHandle, fakeModel } from '../../../helpers/engine/fake-engine-handle.js';
import { eventually } from '../../../helpers/eventually.js';
import { tempFolder } from '../../../helpers/temp-folder.js';
import { type ConfigChanges, testConfig } from '../../../helpers/test-config.js';

export interface FakeDaemon {
  readonly daemon: Daemon;
  readonly engine: FakeEngineHandle;
  readonly env: NodeJS.ProcessEnv;
  readonly http: string;
  readonly ws: string;
  /** The token of the runtime folder; '' in mode none. */
  readonly own: string;
  /** Adds a key of a client, and waits until the daemon knows it. */
  signer(scopes: readonly Scope[]): Promise<Signer>;
  /** Makes a token, and waits until the daemon takes it. */
  token(scopes: readonly Scope[], expiresMs?: number | null): Promise<{ readonly id: string; readonly token: string }>;
}

export async function startFakeDaemon(changes: ConfigChanges, env = userFolders()): Promise<FakeDaemon> {
  const engine = new FakeEngineHandle();
  const config = testConfig({ ...changes, server: { port: 0, ...changes.server } });
  const starting = startDaemon({ config, model: fakeModel, log: silentLog, publish: true, signals: false, env, startEngine: engine.start });
  starting.catch(() => {});
  await Promise.race([starting, eventually('the daemon publishes itself', () => readDaemonFile(env) !== null)]);
  engine.becomeReady();
  const daemon = await starting;
  const tokenFile = readDaemonFile(env)?.tokenFile ?? null;
  const { http, ws } = daemon.addresses;
  return {
    daemon,
    engine,
    env,
    http: http.replace('0.0.0.0', '127.0.0.1'),
    ws: ws.replace('0.0.0.0', '127.0.0.1'),
    own: tokenFile === null ? '' : readFileSync(tokenFile, 'utf8').trim(),
    async signer(scopes) {
      const { publicKey, privateKey } = generateKeyPairSync('ed25519');
      const name = `key-${scopes.join('-')}`;
      mkdirSync(keysFolder(env), { recursive: true });
      addKey(keysFolder(env), { name, scopes, key: publicKey });
      const signer = nodeSigner(name, privateKey);
      // What was made in the second of its start does not count.
      await eventually('the key is known', async () => (await signedFetch(signer)(`${http}/openapi.json`)).status === 200);
      return signer;
    },
    async token(scopes, expiresMs = null) {
      const { record, token } = createRecord(tokensFolder(env), { name: 'test', scopes, expiresMs }, Date.now());
      const authorization = `Bearer ${token}`;
      await eventually(
        'the token is taken',
        async () => (await fetch(`${http}/openapi.json`, { headers: { authorization } })).status === 200,
      );
      return { id: record.id, token };
    },
  };
}

export function userFolders(): NodeJS.ProcessEnv {
  const home = tempFolder();
  return { HOME: home, XDG_RUNTIME_DIR: join(home, 'run') };
}
