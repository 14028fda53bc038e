/**
 * Whether the GPU test programs compile, on a machine that has nvcc and no GPU: what CI asks. Takes some twenty seconds on two cores.
 * Fails when none could be looked at; one whose libraries are not here is told.
 *
 *   node test/gpu/check.mjs
 */
import { checkPrograms } from './compile.mjs';
import { programs } from './programs.mjs';
import { tail } from './report.mjs';

const checked = await checkPrograms(programs);
for (const { program, problem, skipped } of checked)
  if (problem !== undefined) process.stdout.write(`${program.name}: ${skipped ? 'not checked: ' : ''}${tail(problem, 40)}\n`);
const compile = checked.filter(({ problem }) => problem === undefined).length;
const failed = checked.filter(({ problem, skipped }) => problem !== undefined && !skipped).length;
const left = checked.length - compile - failed;
process.stdout.write(`GPU test programs: ${compile} compile, ${failed} do not, ${left} not checked.\n`);
process.exit(failed === 0 && compile > 0 ? 0 : 1);
