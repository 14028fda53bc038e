/**
 * The configuration that a command works with, found in the order that users rely on: --config FILE, else the user's config.toml when
 * it exists, else the built-in demo profile; with the environment and --set on top.
 */
import { existsSync } from 'node:fs';
import { type ConfigDefaults, type LoadedConfig, loadConfig } from '../../config/load.js';
import { userConfigPath } from '../../config/paths.js';
import { demoProfile } from '../demo-profile.js';
import type { VerbInput } from './verb.js';

/** Loads it. `extraSets` come after those of the user; `defaults` stand in place of the schema's. @throws ConfigError with every problem. */
export function effectiveConfig(input: VerbInput, extraSets: readonly string[] = [], defaults: ConfigDefaults = {}): LoadedConfig {
  const { env } = input.io;
  const own = userConfigPath(env);
  const file = input.text('config') ?? (existsSync(own) ? own : demoProfile());
  const loaded = loadConfig({ file, sets: [...input.list('set'), ...extraSets], env, defaults });
  const warning = file === demoProfile() ? otherModelWarning(loaded) : null;
  return warning === null ? loaded : { ...loaded, warnings: [...loaded.warnings, warning] };
}

/** The profile is cut to the size of its own model; whoever runs another one in it should know. */
function otherModelWarning({ config, origins }: LoadedConfig): string | null {
  const name = config.inference.model_name;
  if (name === 'demo') return null;
  const kept = [...origins].flatMap(([key, origin]) => (origin.startsWith(demoProfile()) ? [key] : []));
  if (kept.length === 0) return null;
  return (
    `${name} runs in the profile of the demo model, which also sets ${kept.join(', ')}; ` +
    'write a configuration for it with "inferd config init"'
  );
}

/** Prints the warnings of a configuration on stderr. */
export function printWarnings(input: VerbInput, loaded: LoadedConfig): void {
  for (const warning of loaded.warnings) input.io.stderr.write(`inferd: warning: ${warning}\n`);
}
