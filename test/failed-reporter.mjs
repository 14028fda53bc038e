// A reporter of node:test for run.mjs: a line for each test that failed, with those around it, its file and the beginning of why.
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const compiled = join(dirname(fileURLToPath(import.meta.url)), '..', 'dist');

export default async function* failed(events) {
  // Node tells of the tests of one file after those of another, also where files run at a time.
  const names = [];
  for await (const { type, data } of events) {
    if (type === 'test:start') names.splice(data.nesting, Infinity, data.name);
    if (type !== 'test:fail' || data.details.error.failureType === 'subtestsFailed') continue;
    const { error } = data.details;
    const why = String(error.cause?.message ?? error.message)
      .replace(/\s+/g, ' ')
      .slice(0, 300);
    const file = data.file === undefined ? '' : `${relative(compiled, data.file)}: `;
    yield `${file}${[...names.slice(0, data.nesting), data.name].join(' > ')}: ${why}\n`;
  }
}
