/**
 * The examples in config/deploy, read as what they are: every option, verb, script, path, port, stage and volume that they name exists, and
 * what they promise (no root, a drain that fits, probes that are answered) holds.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { loadConfig } from '../../config/load.js';
import { type Config, schema } from '../../config/schema.js';
import { allVerbs } from '../../daemon/cli/verbs.js';
import { longestStopS } from '../../daemon/stop-limits.js';
import { packageRoot } from '../../native/index.js';
import { startTestDaemon } from '../helpers/daemon/daemon.js';
import { testConfig } from '../helpers/test-config.js';
import { rawRequest } from '../helpers/wire/raw-http.js';

const verbs = await allVerbs();

const root = packageRoot();
const folder = join(root, 'config', 'deploy');
const read = (name: string): string => readFileSync(join(folder, name), 'utf8');
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> };
const defaults = testConfig();

/** The configuration that these variables make; every INFERD_ variable must be an option, or one of the build's. */
function configOf(env: Readonly<Record<string, string>>): Config {
  const own = Object.entries(env).filter(([name]) => name.startsWith('INFERD_') && !/^INFERD_CUDA/.test(name));
  const { config, warnings } = loadConfig({ env: Object.fromEntries(own) });
  assert.deepEqual(warnings, []);
  return config;
}

interface Instruction {
  readonly name: string;
  readonly value: string;
}

/** Lines that go on are joined; comments left out. */
function instructions(dockerfile: string): readonly Instruction[] {
  const lines = dockerfile.replaceAll(/\\\n/g, ' ').split('\n');
  return lines
    .filter((line) => line.trim() !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name, value] = /^([A-Z]+) (.+)$/.exec(line) ?? assert.fail(`no instruction: ${line}`);
      return { name: name ?? '', value: value ?? '' };
    });
}

function checkVerb(args: readonly string[]): void {
  assert.ok(
    verbs.some(({ name }) => name === args[0]),
    `inferd ${args.join(' ')}`,
  );
}

for (const name of ['Dockerfile.cpu', 'Dockerfile.cuda']) {
  test(`${name} names stages, scripts, verbs and options that exist, and runs without root`, () => {
    const all = instructions(read(name));
    const stages: string[] = [];
    for (const { name: instruction, value } of all) {
      if (instruction === 'FROM') stages.push(/ AS (\w+)$/.exec(value)?.[1] ?? '');
      if (instruction === 'COPY') {
        const [, from] = /^--from=(\S+) /.exec(value) ?? [];
        if (from !== undefined) assert.ok(stages.includes(from), `the stage ${from}`);
      }
      for (const [, script = ''] of value.matchAll(/npm run (?:-s )?([\w:]+)/g)) assert.ok(script in scripts, `npm run ${script}`);
      for (const [, verb = ''] of value.matchAll(/\/bin\/inferd (\w+)/g)) checkVerb([verb]);
    }
    const final = all.slice(all.findLastIndex(({ name: instruction }) => instruction === 'FROM'));
    const one = (wanted: string): string => {
      const found = final.filter(({ name: instruction }) => instruction === wanted);
      assert.equal(found.length, 1, wanted);
      return found[0]?.value ?? '';
    };
    assert.equal(one('USER'), 'node');
    assert.equal(one('STOPSIGNAL'), 'SIGTERM');
    assert.equal(Number(one('EXPOSE')), defaults.server.port);
    assert.deepEqual(JSON.parse(one('ENTRYPOINT')), ['inferd']);
    checkVerb(JSON.parse(one('CMD')) as string[]);
    const health = JSON.parse(one('HEALTHCHECK').replace(/^.* CMD /, '')) as string[];
    assert.equal(health[0], 'inferd');
    checkVerb(health.slice(1));
    const env = final.filter(({ name: instruction }) => instruction === 'ENV').map(({ value }) => value.split('='));
    const config = configOf(Object.fromEntries(env) as Record<string, string>);
    assert.equal(config.server.host, '0.0.0.0');
    assert.ok(String(config.auth.mode).includes('token'), 'strangers must show a token');
    assert.ok(existsSync(join(folder, `${name}.dockerignore`)));
  });
}

type Tree = { readonly [key: string]: Tree } & readonly Tree[] & string;

/** The objects of the file by kind. */
function kubernetes(): ReadonlyMap<string, Tree> {
  const documents = parseAllDocuments(read('kubernetes.yaml'), { strict: true, uniqueKeys: true });
  for (const { errors, warnings } of documents) assert.deepEqual([...errors, ...warnings], []);
  return new Map(documents.map((document) => document.toJS() as Tree).map((object) => [String(object['kind']), object]));
}

const at = (tree: Tree | undefined, ...path: readonly (string | number)[]): Tree =>
  path.reduce<Tree>(
    (node, key) => node[key as string] ?? assert.fail(`${path.join('.')} is missing`),
    tree ?? assert.fail('no such object'),
  );
const list = (tree: Tree): readonly Tree[] => [...tree];

test('the Kubernetes example sets options that exist, mounts what it declares, and is found by AIBrix', () => {
  const objects = kubernetes();
  const pod = at(objects.get('Deployment'), 'spec', 'template');
  const spec = at(pod, 'spec');
  const container = at(spec, 'containers', 0);
  const env = Object.fromEntries(list(at(container, 'env')).map((entry) => [String(entry['name']), String(entry['value'])]));
  const config = configOf(env);
  const labels = at(pod, 'metadata', 'labels');
  assert.deepEqual(labels, at(objects.get('Deployment'), 'metadata', 'labels'));
  assert.equal(labels['model.aibrix.ai/name'], config.inference.served_model_name);
  for (const name of ['port', 'metric-port']) assert.equal(Number(labels[`model.aibrix.ai/${name}`]), config.server.port);
  assert.equal(at(labels, 'model.aibrix.ai/engine'), 'vllm');
  for (const value of Object.values(labels)) assert.match(String(value), /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/);
  assert.equal(Number(at(container, 'ports', 0, 'containerPort')), config.server.port);
  assert.equal(Number(at(objects.get('Service'), 'spec', 'ports', 0, 'port')), config.server.port);
  assert.equal(at(objects.get('Service'), 'spec', 'ports', 0, 'targetPort'), at(container, 'ports', 0, 'name'));
  assert.deepEqual(at(objects.get('Service'), 'spec', 'selector'), at(objects.get('Deployment'), 'spec', 'selector', 'matchLabels'));
  assert.ok(config.auth.allowed_hosts.includes(String(at(objects.get('Service'), 'metadata', 'name'))));

  const volumes = list(at(spec, 'volumes'));
  const named = new Map(volumes.map((volume) => [String(volume['name']), volume]));
  const containers = [...list(at(spec, 'initContainers')), container];
  for (const one of containers) {
    for (const mount of list(at(one, 'volumeMounts'))) assert.ok(named.has(String(mount['name'])), String(mount['name']));
    if (one['args'] !== undefined) checkVerb(list(one['args']).map(String));
  }
  assert.equal(at(named.get('models'), 'persistentVolumeClaim', 'claimName'), at(objects.get('PersistentVolumeClaim'), 'metadata', 'name'));
  assert.equal(at(named.get('secret'), 'secret', 'secretName'), at(objects.get('Secret'), 'metadata', 'name'));
  assert.ok('token' in at(objects.get('Secret'), 'stringData'));
  const writesToken = containers.some((one) => JSON.stringify(one['command'] ?? '').includes(`> ${config.auth.token_file}`));
  assert.ok(writesToken, 'the token comes to where the daemon reads it');

  assert.equal(String(at(spec, 'securityContext', 'runAsNonRoot')), 'true');
  assert.equal(String(at(container, 'securityContext', 'readOnlyRootFilesystem')), 'true');
  assert.equal(Number(at(container, 'resources', 'limits', 'nvidia.com/gpu')), 1);
  const [program, seconds] = list(at(container, 'lifecycle', 'preStop', 'exec', 'command'));
  assert.equal(program, 'sleep');
  const needed = Number(seconds) + longestStopS(config.server.drain_timeout_s);
  assert.ok(Number(at(spec, 'terminationGracePeriodSeconds')) >= needed, `it needs ${needed} s`);
});

test('the probes and the scraper of the Kubernetes example are answered', async () => {
  const pod = at(kubernetes().get('Deployment'), 'spec', 'template');
  const container = at(pod, 'spec', 'containers', 0);
  const daemon = await startTestDaemon(['auth.mode=token', 'metrics.open=true']);
  try {
    const port = Number(new URL(daemon.http).port);
    for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
      const get = at(container, probe, 'httpGet');
      assert.equal(at(get, 'port'), at(container, 'ports', 0, 'name'));
      const headers = list(at(get, 'httpHeaders')).map((header) => `${String(header['name'])}: ${String(header['value'])}`);
      const reply = await rawRequest(port, [`GET ${String(at(get, 'path'))} HTTP/1.1`, ...headers, 'Connection: close']);
      assert.equal(reply.status, 200, probe);
    }
    const path = String(at(pod, 'metadata', 'annotations', 'prometheus.io/path'));
    assert.equal((await rawRequest(port, [`GET ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close'])).status, 200);
  } finally {
    await daemon.close();
  }
});

test('the nginx example is well-formed and fits the defaults', () => {
  const text = read('nginx.conf').replaceAll(/^\s*#.*$/gm, '');
  let depth = 0;
  for (const line of text.split('\n').map((l) => l.trim())) {
    if (line === '') continue;
    assert.match(line, /[;{}]$/, `ends nowhere: ${line}`);
    if (line.endsWith('{')) depth++;
    if (line === '}') depth--;
    assert.ok(depth >= 0);
  }
  assert.equal(depth, 0);
  assert.match(text, new RegExp(`server ${defaults.server.host.replaceAll('.', '\\.')}:${defaults.server.port};`));
  const [, mebibytes] = /client_max_body_size (\d+)m;/.exec(text) ?? [];
  assert.equal(Number(mebibytes) * 2 ** 20, defaults.server.max_message_bytes);
  for (const needed of ['proxy_buffering off', 'proxy_http_version 1.1', 'Upgrade $http_upgrade', 'Host $host', 'proxy_read_timeout 1h'])
    assert.ok(text.includes(needed), needed);
});

test('every option and file that a text there names exists', () => {
  for (const name of readdirSync(folder)) {
    const text = read(name);
    for (const [whole, section = '', key = ''] of text.matchAll(/(?<![\w./-])([a-z_]+)\.([a-z][a-z_]+)(?![\w.:/-])/g)) {
      const options = (schema as Readonly<Record<string, object>>)[section];
      if (options !== undefined) assert.ok(key in options, `${name} names ${whole}`);
    }
    for (const [, variable = ''] of text.matchAll(/\bINFERD_([A-Z]+__[A-Z0-9_]+)\b/g)) {
      const [section = '', key = ''] = variable.toLowerCase().split('__');
      if (section !== 'section')
        assert.ok(key in ((schema as Readonly<Record<string, object>>)[section] ?? {}), `${name} names INFERD_${variable}`);
    }
    for (const [, file = ''] of text.matchAll(/\b((?:config|test|daemon)\/[\w/.-]+\.(?:ts|cpu|cuda|md|yaml|conf))\b/g))
      assert.ok(existsSync(join(root, file)), `${name} names ${file}`);
  }
});
