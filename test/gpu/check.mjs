/**
 * Whether the GPU test programs compile, on a machine that has nvcc and no GPU: what CI asks. Takes some ten seconds.
 *
 *   node test/gpu/check.mjs
 */
import { checkPrograms } from './compile.mjs';
import { programs } from './programs.mjs';
import { tail } from './report.mjs';

let failed = 0;
for (const { program, problem, skipped } of await checkPrograms(programs)) {
  if (problem === undefined) continue;
  if (!skipped) failed++;
  process.stdout.write(`${program.name}: ${skipped ? 'not checked: ' : ''}${tail(problem, 40)}\n`);
}
process.stdout.write(
  failed === 0 ? 'No GPU test program has an error.\n' : `${failed} of ${programs.length} GPU test programs do not compile.\n`,
);
process.exit(failed === 0 ? 0 : 1);
