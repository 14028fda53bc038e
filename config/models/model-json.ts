/**
 * Reads the JSON files of a model. They come from strangers: sizes are bounded, and a cached file must really lie in the cache. Used by
 * the other files of this room at start-up.
 */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ConfigError } from '../error.js';
import { isKind } from '../file-kind.js';
import { isInside } from './hub-cache.js';

/** Largest file that is read, bytes. */
const maxJsonBytes = 4 * 2 ** 20;

/** What a file of the model says, or null when it is not there. `cache`: root that it must lie in. @throws ConfigError 65 */
export function readValue(folder: string, name: string, cache: string | null): unknown {
  const path = join(folder, name);
  if (!isKind(path, 'file')) return null;
  if (cache !== null && !isInside(cache, path)) throw new ConfigError(`${path} leads out of the cache; download the model again`, 65);
  if (statSync(path).size > maxJsonBytes) throw new ConfigError(`${path} is larger than ${maxJsonBytes} bytes, so it is not read`, 65);
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new ConfigError(
      code === undefined ? `${path} is not valid JSON; download the model again` : `${path} cannot be read (${code})`,
      65,
    );
  }
}

/** The same of a file that holds an object. @throws ConfigError 65 */
export function readJson(folder: string, name: string, cache: string | null): Record<string, unknown> | null {
  const path = join(folder, name);
  if (!isKind(path, 'file')) return null;
  const data = readValue(folder, name, cache);
  if (typeof data !== 'object' || data === null || Array.isArray(data)) throw new ConfigError(`${path} does not hold a JSON object`, 65);
  return data as Record<string, unknown>;
}
