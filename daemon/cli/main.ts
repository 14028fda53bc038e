#!/usr/bin/env node
/**
 * Entry of the command line. Runs one verb, lets the output leave, and ends the process with its exit code; whatever threads an engine
 * in this process still has end with it. A reader of stdout that goes away (`inferd run ... | head`) ends it quietly.
 */
import { packageVersion } from '../version.js';
import { runProgram } from './program.js';
import { EXIT } from './verb.js';
import { verbs } from './verbs.js';

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT.ok);
  throw error;
});

const { stdin, stdout, stderr, env } = process;
const code = await runProgram({ version: packageVersion(), verbs, io: { stdin, stdout, stderr, env } }, process.argv.slice(2));
stdout.write('', () => process.exit(code));
