/** A configuration for tests: the defaults of the option table with some values replaced. */
import { type Config, schema } from '../../config/schema.js';

export type ConfigChanges = { readonly [S in keyof Config]?: Partial<Config[S]> };

export function testConfig(changes: ConfigChanges = {}): Config {
  const sections = Object.entries(schema).map(([name, options]) => {
    const defaults = Object.fromEntries(Object.entries(options).map(([key, option]) => [key, option.default]));
    return [name, { ...defaults, ...changes[name as keyof Config] }];
  });
  return Object.fromEntries(sections) as Config; // proof: every section and key of the schema
}
