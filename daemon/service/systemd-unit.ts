/**
 * The texts of the systemd user units, `inferd.service` and, where the manager is to listen, `inferd.socket`. Pure.
 *
 * Why each setting is there stands beside it in the unit, for whoever reads that one. What is left out on purpose:
 *   MemoryDenyWriteExecute   V8 makes machine code at run time
 *   PrivateDevices           GPUs are device nodes (/dev/nvidia*, /dev/dri)
 *   PrivateUsers             where user namespaces are forbidden the start would fail; systemd 253 and later sets it by itself if it can
 *   ProtectKernelModules, ProtectKernelLogs, ProtectClock, CapabilityBoundingSet
 *                            drop capabilities, which a manager without any cannot do: up to systemd 252 the start fails with 218
 */
import { tmpdir } from 'node:os';
import { EXIT } from '../exit-code.js';
import { StartError } from '../start-error.js';
import type { ServiceFile } from './manager.js';
import type { ServiceSpec } from './spec.js';
import { pathWord, restOfLine, word } from './systemd-text.js';

export const SERVICE_UNIT = 'inferd.service';
export const SOCKET_UNIT = 'inferd.socket';

/** Ends that no fresh start can change: something must be corrected first. */
const LASTING = [EXIT.usage, EXIT.badData, EXIT.missing, EXIT.noPermission, EXIT.config];
/** A second signal, as of somebody who does not want to wait for the drain. */
const FORCED = 128 + 15;

const HEAD = `# Written by "inferd service install", which writes it anew: changes of yours belong in a file beside it, `;

export interface UnitOptions {
  readonly spec: ServiceSpec;
  /** Folder of the user's units. */
  readonly folder: string;
  /** The manager listens, and starts the daemon at the first connection. */
  readonly socket: boolean;
}

/** @throws StartError for a path or an address that cannot be written into a unit */
export function systemdUnits({ spec, folder, socket }: UnitOptions): readonly ServiceFile[] {
  const file = (name: string, text: string): ServiceFile => ({ path: `${folder}/${name}`, text: `${HEAD}${name}.d/own.conf.\n${text}` });
  return [file(SERVICE_UNIT, serviceText(spec, socket)), ...(socket ? [file(SOCKET_UNIT, socketText(spec))] : [])];
}

function serviceText(spec: ServiceSpec, socket: boolean): string {
  // A folder for sockets or profiles in /tmp would be another one inside the service.
  const privateTmp = !spec.writable.some((path) => [tmpdir(), '/tmp', '/var/tmp'].some((tmp) => `${path}/`.startsWith(`${tmp}/`)));
  return `[Unit]
Description=inferd, a local LLM inference daemon
${socket ? `Requires=${SOCKET_UNIT}\nAfter=${SOCKET_UNIT}\n` : ''}# A daemon that cannot live is left alone after five starts.
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
# The program systemd-notify brings the messages.
NotifyAccess=all
ExecStart=:${spec.command.map(word).join(' ')}
ExecReload=kill -HUP $MAINPID
${Object.entries(spec.environment)
  .map(([name, value]) => `Environment=${word(`${name}=${value}`)}\n`)
  .join('')}EnvironmentFile=-${linePath(spec.environmentFile, 'The file of variables')}

# The daemon asks for more time as long as the model makes progress.
TimeoutStartSec=600
# Running requests finish within server.drain_timeout_s; only the daemon itself gets the signal.
TimeoutStopSec=${spec.stopLimitS}
KillMode=mixed
WatchdogSec=${spec.watchdogS}
# No restart cures usage (64), a damaged or missing model (65, 66), permissions (77) or configuration (78). It may cure an address in
# use (69), an engine that gave up (70), and a GPU that was spoiled for the old process (71).
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=${LASTING.join(' ')}
SuccessExitStatus=${FORCED}

# Prompts are in memory: no core dumps.
LimitCORE=0
LimitMEMLOCK=infinity
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
# V8 guards its machine code with memory protection keys where the processor has them.
SystemCallFilter=@system-service @pkey
SystemCallErrorNumber=EPERM
# Not MemoryDenyWriteExecute: V8 makes machine code at run time. Not PrivateDevices: GPUs are devices.
# systemd before 253 applies what follows to user services only with PrivateUsers=yes, which needs user namespaces.
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=${privateTmp ? 'yes' : 'no'}
ProtectKernelTunables=yes
ProtectControlGroups=yes
RuntimeDirectory=inferd
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
${spec.writable.map((path) => `ReadWritePaths=${written(pathWord(`-${path}`), path, 'A folder of the configuration')}\n`).join('')}InaccessiblePaths=-%h/.ssh -%h/.gnupg

[Install]
${socket ? `Also=${SOCKET_UNIT}` : 'WantedBy=default.target'}
`;
}

function socketText({ listen }: ServiceSpec): string {
  const { unixSocket } = listen;
  return `[Unit]
Description=Addresses of inferd

[Socket]
ListenStream=${tcpAddress(listen)}
${unixSocket === null ? '' : `ListenStream=${linePath(unixSocket, 'server.unix_socket')}\nRemoveOnStop=yes\n`}SocketMode=0600
DirectoryMode=0700
FileDescriptorName=inferd

[Install]
WantedBy=sockets.target
`;
}

/** As ListenStream= takes it: an address in digits, and a port that stays the same. */
function tcpAddress({ host, port }: ServiceSpec['listen']): string {
  if (port === 0) throw new StartError('server.port is 0; with --socket the service needs a fixed port, such as 8765.', EXIT.config);
  const bare = host.replace(/^\[(.*)\]$/, '$1');
  if (bare === 'localhost') return `127.0.0.1:${port}`;
  if (/^[\d.]+$/.test(bare)) return `${bare}:${port}`;
  if (/^[0-9a-fA-F:.]+$/.test(bare)) return `[${bare}]:${port}`;
  throw new StartError(`server.host is the name ${host}; with --socket it must be an address in digits, such as 127.0.0.1.`, EXIT.config);
}

const linePath = (path: string, what: string): string => written(restOfLine(path), path, what);

/** `text`: how the path is written, or null where it cannot be. */
function written(text: string | null, path: string, what: string): string {
  if (text !== null) return text;
  throw new StartError(`${what}, ${JSON.stringify(path)}, has control characters or ends in a space or backslash; rename it.`, EXIT.config);
}
