/** The file of a dataset as text, or a sentence for the user. */
import { readFileSync } from 'node:fs';
import { CliError, EXIT } from '../../../verb.js';

/** @throws CliError */
export function readDataset(name: string, path: string | null): string {
  if (path === null) throw new CliError(`--dataset-name ${name} needs its file: give --dataset-path`, EXIT.usage);
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? (error as Error).message;
    throw new CliError(`The dataset ${path} cannot be read (${why}); check --dataset-path`, EXIT.missing, error);
  }
}

export const badDataset = (path: string | null, what: string): CliError =>
  new CliError(`The dataset ${path} ${what}; check --dataset-path and --dataset-name`, EXIT.badData);
