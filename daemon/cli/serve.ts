/**
 * `inferd serve`: the daemon in the foreground. Says one line with the addresses when it is ready and one line how to talk to it; with
 * --json, one JSON object a line for start-up, readiness and the end. Signals are the daemon's own business (signals.ts).
 */
import { networkInterfaces } from 'node:os';
import { resolve } from 'node:path';
import type { StartProgress } from '../../actors/client-types.js';
import { asksForToken, authModes } from '../../config/auth-modes.js';
import { isLoopback } from '../../config/check.js';
import { configOfDefault, fileOfDefault } from '../../config/model-file.js';
import { resolveModelFolder } from '../../config/models/model-folder.js';
import type { Config } from '../../config/schema.js';
import { packageVersion } from '../version.js';
import { builtEngine } from './build.js';
import { effectiveConfig, printWarnings } from './effective.js';
import { progressBar } from './progress.js';
import { configOptions, type ExitCode, type Verb, type VerbInput } from './verb.js';

export const serve: Verb = {
  name: 'serve',
  summary: 'run the daemon in the foreground',
  details:
    'Without --config it reads the config.toml in the user configuration folder if there is one, else the built-in demo profile ' +
    '(embedded demo model, CPU). Ctrl-C or SIGTERM drains: running requests finish, within server.drain_timeout_s; a second one ' +
    'stops at once. SIGHUP reads the configuration again.',
  options: [
    ...configOptions,
    { flags: '--profile <dir>', doc: 'record a profile from the start and write it to this folder', kind: 'text' },
    { flags: '--json', doc: 'print start-up and progress as JSON, one object a line' },
  ],
  examples: ['inferd serve', 'inferd serve --config my.toml', 'inferd serve --set server.port=9000 --set scheduler.max_num_sequences=16'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const json = input.flag('json');
  const read = () => effectiveConfig(input, profileSets(input.text('profile')));
  const loaded = read();
  const modelConfig = configOfDefault(loaded, fileOfDefault(loaded.config, io.env));
  const model = resolveModelFolder(modelConfig, io.env);
  printWarnings(input, loaded);
  const [{ startDaemon }, { createLog }] = await Promise.all([import('../daemon.js'), import('../log.js')]);
  const event = (fields: Record<string, unknown>): void => {
    if (json) io.stdout.write(`${JSON.stringify(fields)}\n`);
  };
  const bar = json ? null : progressBar(io);
  const { pretty } = loaded.config.log;
  const log = bar?.log
    ? createLog({ ...loaded.config.log, pretty: pretty === 'auto' ? 'always' : pretty }, bar.log)
    : createLog(loaded.config.log);
  event({ event: 'starting', version: packageVersion(), pid: process.pid, config: loaded.file, model: model.name });
  await builtEngine(io, (percent) => event({ event: 'progress', phase: 'build', done: percent, total: 100 }));
  const daemon = await startDaemon({
    config: loaded.config,
    origins: loaded.origins,
    model,
    modelConfig,
    log,
    publish: true,
    env: io.env,
    reload: () => read().config,
    onProgress: (progress: StartProgress) => {
      bar?.update(progress);
      event({ event: 'progress', phase: progress.phase, done: progress.done, total: progress.total });
    },
  }).finally(() => bar?.end());

  const { ws, http, unixSocket } = daemon.addresses;
  event({ event: 'ready', ws, http, unix_socket: unixSocket, pid: process.pid, version: packageVersion(), model: model.name });
  if (!json) {
    const local = unixSocket === null ? '' : ` and ${unixSocket}`;
    io.stdout.write(`inferd ${packageVersion()} is ready: ${model.name} at ${ws} (HTTP: ${http})${local}\n`);
    // Started by "npm start" or npx, the command is not on the PATH.
    const command = io.env['npm_execpath'] === undefined ? 'inferd' : 'npx inferd';
    for (const line of networkLines(loaded.config, http)) io.stdout.write(`${line}\n`);
    io.stdout.write(`Try in another terminal: ${command} run "What is 123 + 456?"\n`);
  }
  const code = await daemon.stopped;
  event({ event: 'stopped', exit_code: code });
  return code;
}

/** What to do so that others can use a daemon that they can reach. */
function networkLines({ server, auth }: Config, http: string): readonly string[] {
  if (isLoopback(server.host) || authModes(auth.mode).length === 0) return [];
  const port = new URL(http).port;
  const any = server.host === '0.0.0.0' || server.host === '::';
  const others = Object.values(networkInterfaces()).flatMap((all) =>
    (all ?? []).filter(({ internal, family }) => !internal && family === 'IPv4'),
  );
  const urls = any ? others.map(({ address }) => `http://${address}:${port}`) : [http];
  const give = asksForToken(auth.mode)
    ? '"inferd token create --name WHO" makes a token for each'
    : '"inferd key add WHO FILE.pem" adds the key of each';
  return [`Others on the network reach it at ${urls.length > 0 ? urls.join(' and ') : http}; ${give}.`];
}

/** --profile as options. */
function profileSets(directory: string | undefined): readonly string[] {
  return directory === undefined ? [] : [`profile.directory=${JSON.stringify(resolve(directory))}`, 'profile.at_start=true'];
}
