/** Finds the CUDA toolkit, cuBLAS and the GPUs of this machine, for the native build and for the GPU tests. Any process; starts short ones. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** The output of a command, or null when it is not there or fails. */
export function works(command, ...args) {
  const run = spawnSync(command, args, { encoding: 'utf8' });
  return run.status === 0 ? run.stdout : null;
}

const toolkitFolder = () => process.env['CUDA_HOME'] ?? '/usr/local/cuda';

/** A program of the toolkit: from PATH, else from the toolkit's folder; undefined when neither has one that works. */
export function findTool(name) {
  return [name, join(toolkitFolder(), 'bin', name)].find((path) => works(path, '--version') !== null);
}

/** Compute capabilities of the GPUs here, each once, such as "90"; empty without a driver. */
export function presentArchitectures() {
  const versions = (works('nvidia-smi', '--query-gpu=compute_cap', '--format=csv,noheader') ?? '').match(/\d+\.\d+/g) ?? [];
  return [...new Set(versions.map((version) => version.replace('.', '')))];
}

/** The name under which nvcc makes all of an architecture available. */
export const codeFor = (architecture) => (architecture === '90' ? '90a' : architecture);

/** The folder of cublasLt.h, or "". */
export function cublasInclude() {
  return headerFolder('cublasLt.h', process.env['INFERD_CUBLAS_INCLUDE'], 'cublas');
}

/** The folder of cupti.h, or "". */
export function cuptiInclude() {
  const extras = join(toolkitFolder(), 'extras', 'CUPTI', 'include');
  return headerFolder('cupti.h', process.env['INFERD_CUPTI_INCLUDE'], 'cuda_cupti', extras);
}

/** The folder of a header: the one asked for, the toolkit, the system, or the Python package of that name; "" when it is in none. */
function headerFolder(header, asked, packageName, ...more) {
  const packages = (works('python3', '-c', 'import sys; print("\\n".join(sys.path))') ?? '').split('\n').filter((path) => path !== '');
  return (
    [
      asked ?? '',
      join(toolkitFolder(), 'include'),
      ...more,
      '/usr/include',
      ...packages.flatMap((path) => [join(path, 'nvidia', 'cu13', 'include'), join(path, 'nvidia', packageName, 'include')]),
    ].find((folder) => folder !== '' && existsSync(join(folder, header))) ?? ''
  );
}
