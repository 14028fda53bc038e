/**
 * `inferd key add|list|remove`: public keys of clients that sign their requests, for auth.mode = "ed25519". It works on the files alone
 * (front/auth/key-records), whether a daemon runs or not; one that runs notices by itself.
 */
import { readFileSync, statSync } from 'node:fs';
import { keysFolder } from '../../../config/paths.js';
import { addKey, KEY_NAME, type KeyRecord, MAX_KEYS, parseKey, readKeys, removeKey } from '../../front/auth/key-records.js';
import { FileRefusal } from '../../front/auth/private-file.js';
import { makePrivateFolder } from '../../private-folder.js';
import { table } from '../table.js';
import { CliError, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';
import { scopeOption, scopesOf } from './scopes.js';

const add: Verb = {
  name: 'add',
  summary: 'let in who signs with a key',
  details:
    'FILE.pem holds a public Ed25519 key; "openssl genpkey -algorithm ed25519" makes a private one, "openssl pkey -pubout" its public half.',
  args: [
    { name: '<name>', doc: 'the keyid of its signatures' },
    { name: '<file>', doc: 'the public key, PEM' },
  ],
  options: [scopeOption, jsonOption],
  examples: ['inferd key add laptop laptop.pem', 'inferd key add ops ops.pem --scope infer,metrics,admin'],
  run: runAdd,
};

const list: Verb = {
  name: 'list',
  summary: 'show the keys that were added',
  options: [jsonOption],
  examples: ['inferd key list'],
  run: runList,
};

const remove: Verb = {
  name: 'remove',
  summary: 'trust a key no longer; what it has opened ends',
  args: [{ name: '<name>', doc: 'as the list shows it' }],
  options: [jsonOption],
  examples: ['inferd key remove laptop'],
  run: runRemove,
};

export const key: Verb = {
  name: 'key',
  summary: 'add, list or remove keys of clients that sign',
  examples: ['inferd key add laptop laptop.pem', 'inferd key list', 'inferd key remove laptop'],
  verbs: [add, list, remove],
};

/** Longer files are no keys. */
const MAX_PEM_BYTES = 8192;

async function runAdd(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const [name = '', file = ''] = input.args;
  if (!KEY_NAME.test(name))
    throw new CliError(
      `The name ${JSON.stringify(name.slice(0, 70))} is not allowed; take letters, digits, ".", "_" or "-", at most 64`,
      EXIT.usage,
    );
  const scopes = scopesOf(input);
  const { key: given } = readGiven(name, file);
  const folder = keysFolder(io.env);
  makePrivateFolder(folder, 'folder of keys');
  if (readKeys(folder).keys.length >= MAX_KEYS) throw new CliError(`There are ${MAX_KEYS} keys already; remove some`, EXIT.unavailable);
  try {
    addKey(folder, { name, scopes, key: given });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new CliError(`There is a key ${JSON.stringify(name)} already; remove it first with "inferd key remove ${name}"`, EXIT.badData);
  }
  if (input.flag('json')) printJson(io, { name, scopes });
  else io.stdout.write(`Key ${name} may ${scopes.join(', ')}, where auth.mode has "ed25519"\n`);
  return EXIT.ok;
}

async function runList(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const folder = keysFolder(io.env);
  const { keys, bad } = readKeys(folder);
  if (input.flag('json')) printJson(io, { keys: keys.map(({ name, scopes }) => ({ name, scopes })) });
  else if (keys.length === 0) io.stdout.write('There are no keys; "inferd key add NAME FILE.pem" adds one\n');
  else
    io.stdout.write(
      table(
        ['name', 'scopes'],
        keys.map(({ name, scopes }) => [name, scopes.join(',')]),
      ),
    );
  for (const { file, reason } of bad) io.stderr.write(`inferd: warning: ${folder}/${file} is not used: it ${reason}\n`);
  return EXIT.ok;
}

async function runRemove(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const [name = ''] = input.args;
  if (!removeKey(keysFolder(io.env), name))
    throw new CliError(`There is no key ${JSON.stringify(name.slice(0, 70))}; "inferd key list" shows all`, EXIT.missing);
  if (input.flag('json')) printJson(io, { removed: name });
  else io.stdout.write(`Key ${name} is removed\n`);
  return EXIT.ok;
}

function readGiven(name: string, file: string): KeyRecord {
  let text: string;
  try {
    text = statSync(file).size > MAX_PEM_BYTES ? '' : readFileSync(file, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown reason';
    throw new CliError(`${file} cannot be read (${code}); give the path of a public key in PEM`, EXIT.missing, error);
  }
  try {
    return parseKey(name, text.slice(Math.max(0, text.indexOf('-----BEGIN')))); // --scope says what it may do, not the file
  } catch (error) {
    if (error instanceof FileRefusal) throw new CliError(`The file ${file} ${error.message}`, EXIT.badData, error);
    throw error;
  }
}
