/** A pull from the stand-in of the hub into a cache of the test's own, and a look at what came of it. */
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { Config } from '../../../config/schema.js';
import type { PullEvent } from '../../../daemon/hub/progress.js';
import { type Pulled, pullModel } from '../../../daemon/hub/pull.js';
import { testConfig } from '../test-config.js';

export interface PullChanges {
  readonly id?: string;
  readonly revision?: string;
  readonly quant?: string | null;
  readonly include?: readonly string[];
  readonly exclude?: readonly string[];
  readonly token?: string | null;
  readonly limits?: Partial<Config['hub']>;
  readonly signal?: AbortSignal;
  readonly events?: PullEvent[];
  readonly onEvent?: (event: PullEvent) => void;
}

export function pullFrom(url: string, cache: string, changes: PullChanges = {}): Promise<Pulled> {
  return pullModel({
    id: changes.id ?? 'org/model',
    revision: changes.revision ?? 'main',
    quant: changes.quant ?? null,
    include: changes.include ?? [],
    exclude: changes.exclude ?? [],
    cache,
    endpoint: { url, origin: new URL(url).origin, token: changes.token ?? null },
    limits: { ...testConfig().hub, ...changes.limits },
    signal: changes.signal ?? new AbortController().signal,
    onEvent: (event) => {
      changes.events?.push(event);
      changes.onEvent?.(event);
    },
  });
}

/** Every file below a folder with its content; links as "-> TARGET". */
export function tree(folder: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()) {
    const stat = lstatSync(join(folder, name));
    if (stat.isSymbolicLink()) found[name] = `-> ${readlinkSync(join(folder, name))}`;
    else if (stat.isFile()) found[name] = readFileSync(join(folder, name), 'latin1');
  }
  return found;
}
