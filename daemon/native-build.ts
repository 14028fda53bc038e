/**
 * The native engine of an installed package: where it lies, and how it is built when it is first needed. npm runs no script of inferd at
 * its installation, so that a program which only imports the client needs no compiler.
 *
 *   <package>/native/build                      where this user may write there, and in a clone
 *   <cache>/native/<version>-<system>-<digest>  else: a package of root's; the digest is that of the sources
 *
 * native/build.mjs does the work; it lets several starts at a time wait for one build.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { accessSync, constants, existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inferdPaths } from '../config/paths.js';
import { packageRoot } from '../native/index.js';
import { EXIT } from './exit-code.js';
import { makeFolder } from './make-folder.js';
import { StartError } from './start-error.js';
import { packageVersion } from './version.js';

const ADDON = 'inferd.node';
/** Read by addonFile in all threads of the process. */
const VARIABLE = 'INFERD_NATIVE_BUILD';

/** Lets this process use the engine that is built, wherever it lies. False when none is. */
export function useNativeBuild(env: NodeJS.ProcessEnv): boolean {
  if (process.env[VARIABLE] !== undefined || existsSync(join(packageBuild(), ADDON))) return true;
  const folder = cacheBuild(env);
  if (!existsSync(join(folder, ADDON))) return false;
  process.env[VARIABLE] = folder;
  return true;
}

/**
 * Builds the engine where that was not done yet, which takes a minute, or brings the build of this package up to date. `onProgress`: percent.
 * Resolves with what the build had to say, such as about a CUDA backend that did not compile.
 * @throws StartError with one sentence when it cannot be built; `output` hears the compiler
 */
export async function buildNative(
  env: NodeJS.ProcessEnv,
  onProgress: (percent: number) => void,
  output: (text: string) => void,
): Promise<string> {
  const apart = !writable(join(packageRoot(), 'native'));
  const folder = apart ? cacheBuild(env) : packageBuild();
  try {
    makeFolder(folder);
  } catch (error) {
    throw new StartError(
      `The native engine is not built, and neither ${packageRoot()} nor ${folder} can be written; run "inferd build" as the owner of one.`,
      EXIT.noPermission,
      error,
    );
  }
  const { code, stderr } = await runBuild([...(apart ? ['--out', folder] : []), '--progress'], env, onProgress);
  const lines = stderr.trimEnd().split('\n');
  if (code !== 0) {
    const sentence = lines.pop() ?? '';
    if (lines.length > 0) output(`${lines.join('\n')}\n`);
    throw new StartError(sentence || 'The native engine could not be built.', code === EXIT.unavailable ? EXIT.unavailable : EXIT.internal);
  }
  useNativeBuild(env);
  return stderr;
}

const packageBuild = (): string => join(packageRoot(), 'native', 'build');

function cacheBuild(env: NodeJS.ProcessEnv): string {
  const name = `${packageVersion()}-${process.platform}-${process.arch}-${sourceDigest(join(packageRoot(), 'native'))}`;
  return join(inferdPaths(env).cacheDir, 'native', name);
}

/** Tells packages of one version apart that were made from different sources. */
function sourceDigest(folder: string): string {
  const hash = createHash('sha256');
  const walk = (dir: string): void => {
    for (const entry of readdirSync(dir, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const path = join(dir, entry.name);
      if (!entry.isDirectory()) hash.update(`${path.slice(folder.length)}\0`).update(readFileSync(path));
      else if (path !== join(folder, 'build')) walk(path);
    }
  };
  walk(folder);
  return hash.digest('hex').slice(0, 12);
}

function writable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function runBuild(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  onProgress: (percent: number) => void,
): Promise<{ readonly code: number | null; readonly stderr: string }> {
  return new Promise((resolve) => {
    const script = join(packageRoot(), 'native', 'build.mjs');
    const child = spawn(process.execPath, [script, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      const percent = Number(text.trim().split('\n').at(-1));
      if (Number.isFinite(percent)) onProgress(percent);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    child.once('error', (error) => resolve({ code: null, stderr: error.message }));
    child.once('close', (code) => resolve({ code, stderr }));
  });
}
