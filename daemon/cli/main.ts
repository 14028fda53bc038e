#!/usr/bin/env node
/**
 * Entry of the command line. Runs one verb, lets the output leave, and ends the process with its exit code; whatever threads an engine
 * in this process still has end with it. A reader of stdout that goes away (`inferd run ... | head`) ends it quietly; a disk that is
 * full does not.
 */
import { packageVersion } from '../version.js';
import { runProgram } from './program.js';
import { EXIT } from './verb.js';
import { verbsFor } from './verbs.js';

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT.ok);
  process.stderr.write(`inferd: The output cannot be written (${error.code}); check where it goes\n`);
  process.exit(EXIT.unavailable);
});

const { stdin, stdout, stderr, env } = process;
const argv = process.argv.slice(2);
const verbs = await verbsFor(argv);
const code = await runProgram({ version: packageVersion(), verbs, io: { stdin, stdout, stderr, env } }, argv);
// The error event of a lost write comes after the callbacks of writes behind it.
stdout.write('', (error) => setImmediate(() => process.exit(error ? EXIT.unavailable : code)));
