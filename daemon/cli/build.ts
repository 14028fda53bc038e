/**
 * `inferd build`: builds the native engine. The commands that start an engine do the same by themselves when it was never built; this one is
 * for whoever installs a package for others, or has got a CUDA toolkit since.
 */
import { addonFile } from '../../native/index.js';
import { buildNative, useNativeBuild } from '../native-build.js';
import { type ProgressBar, progressBar } from './progress.js';
import { EXIT, type ExitCode, type Io, type Verb, type VerbInput } from './verb.js';

export const build: Verb = {
  name: 'build',
  summary: 'build the native engine, where that is not done yet',
  details:
    'Needs a C++20 compiler, make and cmake; "serve" and "run" do it by themselves when they first start an engine. The engine lies in the ' +
    'folder of the package, or in the cache folder of the user where that one is read-only. INFERD_CUDA=1 asks for the CUDA backend, =0 leaves it out.',
  examples: ['inferd build', 'INFERD_CUDA=1 inferd build'],
  run,
};

async function run({ io }: VerbInput): Promise<ExitCode> {
  await compile(io, () => {});
  io.stdout.write(`The native engine is ready: ${addonFile()}\n`);
  return EXIT.ok;
}

/** Returns when an engine is there to start; at once when it was built before. `onProgress`: percent. @throws StartError */
export async function builtEngine(io: Io, onProgress: (percent: number) => void = () => {}): Promise<void> {
  if (useNativeBuild(io.env)) return;
  io.stderr.write('inferd: building the native engine, once; this takes a minute or two\n');
  await compile(io, onProgress);
}

async function compile(io: Io, onProgress: (percent: number) => void): Promise<void> {
  const bar: ProgressBar = progressBar(io);
  const show = (percent: number): void => {
    bar.update({ phase: 'build', done: percent, total: 100 });
    onProgress(percent);
  };
  try {
    const said = await buildNative(io.env, show, (text) => io.stderr.write(text));
    bar.end();
    io.stderr.write(said);
  } finally {
    bar.end();
  }
}
