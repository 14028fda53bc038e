/**
 * Reload: reads the configuration again and applies what can change while the daemon runs: log.level, auth.allowed_hosts,
 * auth.allowed_origins and [models]. Other changes are named in the log and wait for a restart. A faulty file changes nothing.
 */

import type { Log } from '../actors/runtime/log.js';
import type { Config, SectionName } from '../config/schema.js';
import { type GateRules, gateRules } from './front/gate.js';
import type { LogLevel } from './log.js';

/** Parts of the daemon that a reload replaces. */
export interface Live {
  config: Config;
  rules: GateRules;
}

const isReloadable = (name: string): boolean =>
  ['log.level', 'auth.allowed_hosts', 'auth.allowed_origins'].includes(name) || name.startsWith('models.');

/** Applies `read()` to `live`. `setLevel` changes the level of the daemon's log. Never throws. */
export function reload(live: Live, read: () => Config, setLevel: (level: LogLevel) => void, log: Log): void {
  let next: Config;
  try {
    next = read();
  } catch (error) {
    log.error({ error: (error as Error).message }, 'the configuration was not reloaded');
    return;
  }
  const changed = changedOptions(live.config, next);
  const applied = changed.filter(isReloadable);
  const ignored = changed.filter((name) => !isReloadable(name));
  const { allowed_hosts, allowed_origins } = next.auth;
  live.config = {
    ...live.config,
    auth: { ...live.config.auth, allowed_hosts, allowed_origins },
    log: { ...live.config.log, level: next.log.level },
    models: next.models,
  };
  live.rules = gateRules(live.config.auth);
  setLevel(next.log.level);
  log.info({ applied }, 'the configuration was reloaded');
  if (ignored.length > 0) log.warn({ ignored }, 'these options changed and need a restart');
}

function changedOptions(before: Config, after: Config): string[] {
  return (Object.keys(after) as SectionName[]).flatMap((section) => {
    const [old, fresh]: [Record<string, unknown>, Record<string, unknown>] = [before[section], after[section]];
    return Object.keys(fresh)
      .filter((key) => JSON.stringify(old[key]) !== JSON.stringify(fresh[key]))
      .map((key) => `${section}.${key}`);
  });
}
