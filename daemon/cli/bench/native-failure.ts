/** Failures of the native engine in commands that run one themselves, with the exit code that fits. */
import type { NativeError } from '../../../native/index.js';
import { CliError, EXIT, type ExitCode } from '../verb.js';

const exits: Partial<Record<NativeError['code'], ExitCode>> = {
  bad_model: EXIT.badData,
  io: EXIT.missing,
  unsupported: EXIT.unavailable,
  out_of_memory: EXIT.unavailable,
  device: EXIT.unavailable,
};

/** Runs `work`; what the native engine throws in it becomes a CliError. */
export async function explainingNative<T>(work: () => T): Promise<T> {
  try {
    return work();
  } catch (error) {
    const exit = error instanceof Error ? exits[(error as NativeError).code] : undefined;
    throw exit === undefined ? error : new CliError((error as Error).message.replace(/\.$/, ''), exit, error);
  }
}
