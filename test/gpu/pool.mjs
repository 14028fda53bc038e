/** Child processes of the GPU tests: with a time limit each, which ends their children too, and a few at a time. */
import { spawn } from 'node:child_process';

/**
 * Runs a command to its end. @returns status (124 when it was ended for taking too long), seconds, and what it wrote; `show` also passes
 * it on as it comes.
 */
export function run(command, args, { limitS = 600, show = false, env = {}, cwd } = {}) {
  const started = performance.now();
  return new Promise((resolve) => {
    // A group of its own: compute-sanitizer and node --test start processes that must not outlive the limit.
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has just ended.
      }
    }, limitS * 1000);
    const keep = (chunk) => {
      output += chunk;
      if (show) process.stdout.write(chunk);
    };
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', keep);
    const done = (status, text = '') => {
      clearTimeout(timer);
      if (late) output += `\nended after ${limitS} s\n`;
      resolve({ status: late ? 124 : status, seconds: (performance.now() - started) / 1000, output: output + text });
    };
    child.on('error', (error) => done(127, `${error.message}\n`));
    child.on('close', (code, signal) => done(code ?? 1, signal === null || late ? '' : `\nended by ${signal}\n`));
  });
}

/** All of `jobs` through `work`, at most `width` at a time; results in the order of the jobs. */
export async function inParallel(jobs, width, work) {
  const results = new Array(jobs.length);
  let next = 0;
  const worker = async () => {
    for (let i = next++; i < jobs.length; i = next++) results[i] = await work(jobs[i]);
  };
  await Promise.all(Array.from({ length: Math.min(width, jobs.length) }, worker));
  return results;
}
