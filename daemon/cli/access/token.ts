/**
 * `inferd token create|list|revoke`: tokens of clients, for auth.mode = "token". It works on the records alone (front/auth/token-records),
 * whether a daemon runs or not; one that runs notices by itself.
 */
import { tokensFolder } from '../../../config/paths.js';
import {
  createRecord,
  lastUse,
  MAX_NAME,
  MAX_TOKENS,
  readRecords,
  removeRecord,
  type TokenRecord,
} from '../../front/auth/token-records.js';
import { makePrivateFolder } from '../../private-folder.js';
import { table } from '../table.js';
import { CliError, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';
import { scopeOption, scopesOf } from './scopes.js';

const create: Verb = {
  name: 'create',
  summary: 'make a token and show it, once',
  details: 'The token itself goes to stdout and is kept nowhere: only its hash is. A running daemon takes it at once.',
  options: [
    { flags: '--name <name>', doc: 'for whom it is, as the list shows it', kind: 'text' },
    scopeOption,
    { flags: '--expires <time>', doc: 'when it ends: 90m, 12h, 30d, 1y; never when not given', kind: 'text' },
    jsonOption,
  ],
  examples: ['inferd token create --name laptop', 'inferd token create --name prometheus --scope metrics --expires 1y'],
  run: runCreate,
};

const list: Verb = {
  name: 'list',
  summary: 'show the tokens there are, without what is secret of them',
  options: [jsonOption],
  examples: ['inferd token list', 'inferd token list --json'],
  run: runList,
};

const revoke: Verb = {
  name: 'revoke',
  summary: 'take a token back; what it has opened ends',
  args: [{ name: '<id>', doc: 'as the list shows it' }],
  options: [jsonOption],
  examples: ['inferd token revoke 1f0c93ab'],
  run: runRevoke,
};

export const token: Verb = {
  name: 'token',
  summary: 'make, list or revoke tokens of clients',
  examples: ['inferd token create --name laptop', 'inferd token list', 'inferd token revoke 1f0c93ab'],
  verbs: [create, list, revoke],
};

async function runCreate(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const name = input.text('name') ?? '';
  if (name.length > MAX_NAME || /\p{Cc}/u.test(name))
    throw new CliError(`--name takes at most ${MAX_NAME} characters, without control characters`, EXIT.usage);
  const now = Date.now();
  const wish = { name, scopes: scopesOf(input), expiresMs: expiryOf(input.text('expires'), now) };
  const folder = tokensFolder(io.env);
  makePrivateFolder(folder, 'folder of tokens');
  const before = readRecords(folder).records;
  // What has long expired says nothing to anybody any more.
  for (const record of before) if (record.expiresMs !== null && record.expiresMs < now) removeRecord(folder, record.id);
  if (before.length >= MAX_TOKENS)
    throw new CliError(`There are ${before.length} tokens already; revoke some that nobody uses`, EXIT.unavailable);
  const { record, token: made } = createRecord(folder, wish, now);
  if (input.flag('json')) printJson(io, { ...shown(record), token: made });
  else {
    io.stdout.write(`${made}\n`);
    const until = record.expiresMs === null ? 'does not expire' : `expires ${timeText(record.expiresMs)}`;
    io.stderr.write(
      `Token ${record.id} may ${record.scopes.join(', ')} and ${until}. It is shown this once; "inferd token revoke ${record.id}" takes it back.\n`,
    );
  }
  return EXIT.ok;
}

async function runList(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const folder = tokensFolder(io.env);
  const { records, bad } = readRecords(folder);
  const rows = records.map((record) => ({ ...shown(record), last_used: isoOrNull(lastUse(folder, record)) }));
  if (input.flag('json')) printJson(io, { tokens: rows });
  else if (rows.length === 0) io.stdout.write('There are no tokens; "inferd token create" makes one\n');
  else {
    const now = Date.now();
    const expiry = ({ expiresMs }: TokenRecord) =>
      expiresMs === null ? 'never' : `${timeText(expiresMs)}${expiresMs < now ? ' (over)' : ''}`;
    const cells = records.map((record) => {
      const used = lastUse(folder, record);
      const { id, name, scopes, createdMs } = record;
      return [id, name, scopes.join(','), timeText(createdMs), expiry(record), used === null ? '-' : timeText(used)];
    });
    io.stdout.write(table(['id', 'name', 'scopes', 'created', 'expires', 'last used'], cells));
  }
  for (const { file, reason } of bad) io.stderr.write(`inferd: warning: ${folder}/${file} is not used: it ${reason}\n`);
  return EXIT.ok;
}

async function runRevoke(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const [id = ''] = input.args;
  if (!removeRecord(tokensFolder(io.env), id))
    throw new CliError(`There is no token ${JSON.stringify(id.slice(0, 40))}; "inferd token list" shows all`, EXIT.missing);
  if (input.flag('json')) printJson(io, { revoked: id });
  else io.stdout.write(`Token ${id} is revoked\n`);
  return EXIT.ok;
}

const isoOrNull = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());
const timeText = (ms: number): string => new Date(ms).toISOString().slice(0, 16).replace('T', ' ');

const shown = ({ id, name, scopes, createdMs, expiresMs }: TokenRecord) => ({
  id,
  name,
  scopes,
  created: isoOrNull(createdMs),
  expires: isoOrNull(expiresMs),
});

const MINUTE_MS = 60_000;
const unitMs: Readonly<Record<string, number>> = {
  m: MINUTE_MS,
  h: 60 * MINUTE_MS,
  d: 1440 * MINUTE_MS,
  w: 7 * 1440 * MINUTE_MS,
  y: 365 * 1440 * MINUTE_MS,
};
const MAX_YEARS = 100;

/** Milliseconds since the epoch; null: never. */
function expiryOf(text: string | undefined, nowMs: number): number | null {
  if (text === undefined || text === 'never') return null;
  const [, count = '', unit = ''] = /^([1-9]\d{0,8})([mhdwy])$/.exec(text) ?? [];
  const ms = Number(count) * (unitMs[unit] ?? Number.NaN);
  if (ms > 0 && ms <= MAX_YEARS * unitMs['y']!) return nowMs + ms; // proof: y stands in the table
  throw new CliError(`--expires ${JSON.stringify(text.slice(0, 40))} is not allowed; write 90m, 12h, 30d, 2w, 1y or never`, EXIT.usage);
}
