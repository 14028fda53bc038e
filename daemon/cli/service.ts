/**
 * `inferd service install / uninstall / status`: lets the service manager of this system run the daemon. What is run is said in
 * daemon/service/spec.ts, how each manager is told in a file of its own there.
 */
import { readDaemonFile } from '../../config/paths.js';
import { instanceLives } from '../life/single-instance.js';
import { makeFolder } from '../make-folder.js';
import { readOurs, removeServiceFiles, writeServiceFiles } from '../service/files.js';
import type { ServiceManager } from '../service/manager.js';
import { type ServiceSpec, serviceSpec, serviceWarnings } from '../service/spec.js';
import { serviceManager } from '../service/this-system.js';
import { builtEngine } from './build.js';
import { effectiveConfig, printWarnings } from './effective.js';
import { CliError, configOptions, EXIT, type ExitCode, type Io, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

export const service: Verb = {
  name: 'service',
  summary: 'let the system run the daemon: a systemd user unit, or a launchd agent',
  examples: ['inferd service install', 'inferd service status', 'inferd service uninstall'],
  verbs: [
    {
      name: 'install',
      summary: 'write the unit, start the daemon now and at every login',
      details:
        'The unit has the configuration file, the --set values and the variables INFERD_*, HF_*, XDG_* and CUDA_* of now; install it again when ' +
        'one of them changes, also to move to a new version of inferd or Node. Secrets such as HF_TOKEN belong in service.env beside config.toml. ' +
        'On Linux the daemon runs while you are logged in, or always after "loginctl enable-linger".',
      options: [
        ...configOptions,
        { flags: '--socket', doc: 'systemd listens, and starts the daemon at the first connection' },
        { flags: '--dry-run', doc: 'print the files that would be written' },
      ],
      examples: ['inferd service install', 'inferd service install --config my.toml --socket'],
      run: install,
    },
    {
      name: 'uninstall',
      summary: 'stop the service and remove its files',
      examples: ['inferd service uninstall'],
      run: uninstall,
    },
    {
      name: 'status',
      summary: 'show whether the service is installed and runs',
      details: 'Exits with 69 when it is not installed or does not run. "inferd status" asks the daemon itself.',
      options: [jsonOption],
      examples: ['inferd service status', 'inferd service status --json'],
      run: status,
    },
  ],
};

async function install(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const loaded = effectiveConfig(input);
  const socket = input.flag('socket');
  const manager = serviceManager(io.env);
  const spec = serviceSpec({ config: loaded.config, configFile: input.text('config') ?? null, sets: input.list('set'), env: io.env });
  const files = manager.files(spec, socket);
  if (input.flag('dry-run')) {
    io.stdout.write(files.map(({ path, text }) => `# ${path}\n${text}`).join('\n'));
    return EXIT.ok;
  }
  printWarnings(input, loaded);
  for (const warning of serviceWarnings(spec, io.env)) io.stderr.write(`inferd: warning: ${warning}\n`);
  const before = manager.paths.filter((path) => readOurs(path) !== null);
  await refuseSecondDaemon(io, manager);
  // A minute's work that a start under a manager should not have, and may not be allowed.
  await builtEngine(io);
  makeFolders(spec);

  // From a service that listens itself to one that systemd listens for, or back: nothing of the other kind may stay.
  const stale = before.filter((path) => !files.some((file) => file.path === path));
  const otherKind = stale.length > 0 || (before.length > 0 && before.length < files.length);
  if (otherKind) await manager.deactivate();
  removeServiceFiles(stale);
  const written = writeServiceFiles(files);
  for (const path of written) io.stdout.write(`Wrote ${path}.\n`);
  if (written.length === 0) io.stdout.write(`${files[0]?.path} is up to date.\n`);
  await manager.activate(written.length > 0, socket);
  io.stdout.write(
    socket
      ? `The service is installed; systemd listens at ${addresses(spec)} and starts the daemon at the first connection.\n`
      : 'The service is installed and the daemon runs; "inferd status" shows how it is.\n',
  );
  io.stdout.write(`Its log: ${manager.logCommand}\n`);
  return EXIT.ok;
}

async function uninstall({ io }: VerbInput): Promise<ExitCode> {
  const manager = serviceManager(io.env);
  const installed = manager.paths.filter((path) => readOurs(path) !== null);
  if (installed.length === 0) {
    io.stdout.write(`The service is not installed (${manager.paths[0]} is not there).\n`);
    return EXIT.ok;
  }
  await manager.deactivate();
  for (const path of removeServiceFiles(installed)) io.stdout.write(`Removed ${path}.\n`);
  await manager.forget();
  return EXIT.ok;
}

async function status(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const manager = serviceManager(io.env);
  const now = await manager.status();
  if (input.flag('json')) printJson(io, { manager: manager.name, ...now });
  else if (!now.installed) io.stdout.write(`The service is not installed (${now.file} is not there); "inferd service install" does it.\n`);
  else {
    const enabled = now.enabled === null ? 'unknown' : now.enabled ? 'yes' : 'no';
    io.stdout.write(`${now.file}\n`);
    io.stdout.write(`state      ${now.state ?? 'unknown'}${now.pid === null ? '' : `, pid ${now.pid}`}\n`);
    io.stdout.write(`enabled    ${enabled}\n`);
    for (const note of now.notes) io.stdout.write(`           ${note}\n`);
    io.stdout.write(`log        ${manager.logCommand}\n`);
  }
  return now.installed && now.running ? EXIT.ok : EXIT.unavailable;
}

/** There is one daemon a runtime folder: a service beside one that was started by hand could only fail. */
async function refuseSecondDaemon(io: Io, manager: ServiceManager): Promise<void> {
  if (!(await instanceLives(io.env)) || (await manager.status()).pid !== null) return;
  const at = readDaemonFile(io.env)?.address;
  throw new CliError(
    `An inferd daemon that is no service is running${at === undefined ? '' : ` at ${at}`}; stop it with "inferd stop", then install the service`,
    EXIT.unavailable,
  );
}

/** The service may write into these, but make none of them: what lies around them is read-only for it. */
function makeFolders(spec: ServiceSpec): void {
  for (const folder of spec.writable) {
    try {
      makeFolder(folder, 0o700);
    } catch (error) {
      throw new CliError(
        `The folder ${folder} cannot be made (${(error as Error).message}); check the options that name it`,
        EXIT.noPermission,
        error,
      );
    }
  }
}

function addresses({ listen }: ServiceSpec): string {
  const host = listen.host.includes(':') && !listen.host.startsWith('[') ? `[${listen.host}]` : listen.host;
  return `${host}:${listen.port}${listen.unixSocket === null ? '' : ` and ${listen.unixSocket}`}`;
}
