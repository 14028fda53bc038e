/**
 * What config.json says of the type of keys and values, beside that of the weights: compressed-tensors and ModelOpt write
 * `quantization_config.kv_cache_scheme` where the model was tried with a cache in 8-bit floats, whose scales lie in the checkpoint; the first
 * files of the former have `compression_config`. Pure; asked where the cache is planned and where an engine is started.
 */

type Json = Readonly<Record<string, unknown>>;

const field = (of: unknown, name: string): unknown => (typeof of === 'object' && of !== null ? (of as Json)[name] : undefined);

/** Whether the author of the model asks for keys and values in fp8. */
export function asksForFloat8Cache(config: Json): boolean {
  const scheme = field(config['quantization_config'] ?? config['compression_config'], 'kv_cache_scheme');
  // Scales that are to be found while the model runs are none of the checkpoint's.
  return field(scheme, 'type') === 'float' && field(scheme, 'num_bits') === 8 && field(scheme, 'dynamic') !== true;
}
