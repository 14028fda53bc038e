/** The backend that a benchmark is asked for by name. */
import { backendNames } from '../../../native/device-kinds.js';
import type { BackendName } from '../../../native/index.js';
import { CliError, EXIT } from '../verb.js';

/** For people: "cpu or cuda". */
export const backendChoice = backendNames.join(' or ');

/** @throws CliError of a name that no backend has. */
export function backendNamed(asked: string): BackendName {
  const backend = backendNames.find((name) => name === asked);
  if (backend !== undefined) return backend;
  throw new CliError(`--device ${JSON.stringify(asked.slice(0, 40))} is not allowed; expected ${backendChoice}`, EXIT.usage);
}
