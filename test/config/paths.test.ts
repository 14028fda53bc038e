/**
 * Folders per operating system, and the daemon's published file.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { type DaemonFile, daemonFilePath, hubCachePath, inferdPaths, readDaemonFile, userConfigPath } from '../../config/paths.js';

test('Linux follows the XDG folders, set or not', () => {
  assert.deepEqual(inferdPaths({ HOME: '/h' }, 'linux'), {
    configDir: '/h/.config/inferd',
    dataDir: '/h/.local/share/inferd',
    cacheDir: '/h/.cache/inferd',
    stateDir: '/h/.local/state/inferd',
    runtimeDir: '/h/.local/state/inferd/run',
  });
  const env = { HOME: '/h', XDG_CONFIG_HOME: '/c', XDG_DATA_HOME: '/d', XDG_CACHE_HOME: '/k', XDG_STATE_HOME: '/s', XDG_RUNTIME_DIR: '/r' };
  assert.deepEqual(Object.values(inferdPaths(env, 'linux')), ['/c/inferd', '/d/inferd', '/k/inferd', '/s/inferd', '/r/inferd']);
  assert.equal(userConfigPath(env), '/c/inferd/config.toml');
  assert.equal(daemonFilePath(env), '/r/inferd/daemon.json');
});

test('a relative XDG folder is ignored', () => {
  assert.equal(inferdPaths({ HOME: '/h', XDG_CONFIG_HOME: 'x', XDG_RUNTIME_DIR: '' }, 'linux').configDir, '/h/.config/inferd');
});

test('macOS uses the Library folders', () => {
  const paths = inferdPaths({ HOME: '/Users/a' }, 'darwin');
  assert.equal(paths.configDir, '/Users/a/Library/Application Support/inferd');
  assert.equal(paths.cacheDir, '/Users/a/Library/Caches/inferd');
});

test('the Hugging Face cache is found as its own tools find it', () => {
  const home = { HOME: '/h' };
  assert.equal(hubCachePath(null, home), '/h/.cache/huggingface/hub');
  assert.equal(hubCachePath(null, { ...home, XDG_CACHE_HOME: '/k' }), '/k/huggingface/hub');
  assert.equal(hubCachePath(null, { ...home, HF_HOME: '~/hf' }), '/h/hf/hub');
  assert.equal(hubCachePath(null, { ...home, HF_HOME: '/hf', HF_HUB_CACHE: '/hub' }), '/hub');
  assert.equal(hubCachePath('/own', { ...home, HF_HUB_CACHE: '/hub' }), '/own');
});

test('daemon.json is read back, and anything else in its place is no daemon', () => {
  const env = { XDG_RUNTIME_DIR: mkdtempSync(join(tmpdir(), 'inferd-paths-')) };
  try {
    assert.equal(readDaemonFile(env), null);
    mkdirSync(dirname(daemonFilePath(env)), { recursive: true });
    const file: DaemonFile = {
      pid: 12,
      startedAt: '2025-01-01T00:00:00Z',
      version: '0.1.0',
      address: 'ws://127.0.0.1:1',
      http: 'http://127.0.0.1:1',
      unixSocket: null,
      tokenFile: '/t',
    };
    writeFileSync(daemonFilePath(env), JSON.stringify(file));
    assert.deepEqual(readDaemonFile(env), file);
    for (const text of [
      '',
      '{',
      'null',
      '[]',
      '{}',
      '{"pid": 0}',
      JSON.stringify({ ...file, pid: '12' }),
      JSON.stringify({ ...file, address: 3 }),
    ]) {
      writeFileSync(daemonFilePath(env), text);
      assert.equal(readDaemonFile(env), null, text);
    }
  } finally {
    rmSync(env.XDG_RUNTIME_DIR, { recursive: true });
  }
});
