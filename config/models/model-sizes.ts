/**
 * The sizes that config.json gives, checked before anything is made in these sizes: a thread would fill its memory first and be told the
 * error later. The bounds are those of native/models/config/config.cpp, which has the last word. Pure.
 */
import { ConfigError } from '../error.js';

type ModelConfig = Readonly<Record<string, unknown>>;

/** Largest value by key. */
const largest = {
  vocab_size: 2 ** 24,
  max_position_embeddings: 2 ** 24,
  hidden_size: 2 ** 20,
  intermediate_size: 2 ** 20,
  num_hidden_layers: 1024,
  num_attention_heads: 1024,
  num_key_value_heads: 1024,
  head_dim: 1024,
} as const;
type SizeName = keyof typeof largest;

/** Checks all sizes that are there. `at`: the file, for errors. @throws ConfigError 65 */
export function checkSizes(config: ModelConfig, at: string): void {
  for (const name of Object.keys(largest) as SizeName[]) if ((config[name] ?? null) !== null) size(config, name, at);
}

/** A size that must be there. @throws ConfigError 65 */
export function size(config: ModelConfig, name: SizeName, at: string): number {
  const value = config[name];
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= largest[name]) return value;
  const elsewhere = value === undefined ? '; models that keep it elsewhere are not supported' : '';
  throw new ConfigError(`${at}: ${name} must be a whole number above 0, at most ${largest[name]}${elsewhere}`, 65);
}
