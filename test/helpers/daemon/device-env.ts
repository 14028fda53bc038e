/** The environment of a child process that uses a GPU: nothing of the user's but where the driver's libraries are. */
import { privateEnv } from './daemon.js';

const kept = ['LD_LIBRARY_PATH', 'CUDA_VISIBLE_DEVICES', 'CUDA_HOME', 'INFERD_CUBLAS_INCLUDE'];

export function deviceEnv(): NodeJS.ProcessEnv {
  const own = kept.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]] as const]));
  return { ...privateEnv(), ...Object.fromEntries(own) };
}
