/**
 * What models need of memory, and whether one more fits: planned before a load from the sizes of its files and of one full context, kept
 * as the engine measured it afterwards. Main thread.
 *
 * On a host, pages that an engine has allocated and not yet written count as free, so that what the loaded models may still take is
 * subtracted: what they hold by plan, less what this process has grown since it began. On a GPU a share of all memory may be used
 * (cache.gpu_memory_utilization), and what is planned for others there is subtracted.
 */
import type { ServedModel } from '../../actors/client-types.js';
import { asksForFloat8Cache } from '../../config/cache-scheme.js';
import { isGguf } from '../../config/gguf/files.js';
import type { Config } from '../../config/schema.js';
import { deviceKinds } from '../../native/device-kinds.js';
import type { BackendName } from '../../native/index.js';
import type { FoundModel } from './catalogue.js';
import type { Room } from './residency.js';

/** What the machine says. Bytes. */
export interface MemoryProbe {
  hostFree(): number;
  /** Resident memory of this process. */
  resident(): number;
  /** Of a GPU, in all. */
  deviceTotal(id: number): number;
}

/** What a model takes, bytes. */
export interface ModelNeed {
  readonly weights: number;
  /** Of one sequence of the full length, or as many blocks as are configured. */
  readonly kv: number;
}

interface Held {
  readonly bytes: number;
  readonly device: BackendName;
  readonly deviceIds: readonly number[];
}

export interface MemoryOptions {
  readonly probe: MemoryProbe;
  /** The model that a name means, and the device it would run on. */
  plan(name: string): FoundModel & { readonly device: BackendName };
  /** One that is loaded whatever is planned: the engine then says what is wrong. */
  readonly always: string;
}

export class Memory implements Room {
  readonly #options: MemoryOptions;
  readonly #residentAtStart: number;
  readonly #held = new Map<string, Held>();

  constructor(options: MemoryOptions) {
    this.#options = options;
    this.#residentAtStart = options.probe.resident();
  }

  /** A model is being loaded: it holds what is planned. */
  plan(name: string): void {
    const { model, config, device } = this.#options.plan(name);
    const { weights, kv } = modelNeed({ model, config });
    this.#held.set(name, { bytes: weights + kv, device, deviceIds: config.inference.device_ids });
  }

  /** It is loaded: it holds what its engine says. */
  measured(name: string, { weightBytes, totalBlocks, blockBytes: eachBlock }: ServedModel): void {
    const held = this.#held.get(name);
    if (held !== undefined) this.#held.set(name, { ...held, bytes: weightBytes + totalBlocks * eachBlock });
  }

  gone(name: string): void {
    this.#held.delete(name);
  }

  /** Bytes that a model holds; null when it holds none. */
  of(name: string): number | null {
    return this.#held.get(name)?.bytes ?? null;
  }

  lacks(name: string, gone: readonly string[]): string | null {
    const others = [...this.#held].filter(([other]) => other !== name && !gone.includes(other));
    if (name === this.#options.always && others.length === 0) return null;
    const { model, config, device } = this.#options.plan(name);
    const { weights, kv } = modelNeed({ model, config });
    const { gpu_memory_utilization: share, num_gpu_blocks_override: fixed } = config.cache;
    const free = deviceKinds[device].onHost ? this.#hostFree(gone) : this.#deviceFree(config.inference.device_ids, others, share);
    // Of what is free on a host only a share may become keys and values.
    const need = weights + (deviceKinds[device].onHost && fixed === null ? kv / share : kv);
    if (need <= free) return null;
    const room = `but ${size(Math.max(0, free))} are free`;
    return `needs ${size(need)} (weights ${size(weights)}, KV cache ${size(kv)}), ${room}`;
  }

  /**
   * The configuration that a model is loaded with. On a host, a model beside the default one takes keys and values from a part of what is
   * really free, so that the next ones find room too: what others reserved and have not touched looks free to its engine.
   */
  configFor(name: string): Config {
    const { model, config, device } = this.#options.plan(name);
    const { gpu_memory_utilization: share, num_gpu_blocks_override: fixed } = config.cache;
    if (!deviceKinds[device].onHost || fixed !== null || name === this.#options.always) return config;
    const { weights, kv } = modelNeed({ model, config });
    const seen = this.#options.probe.hostFree() - weights;
    const free = share * (this.#hostFree([name]) - weights);
    const bytes = Math.min(free, Math.max(SPARE * kv, PART_OF_FREE * free));
    const part = seen <= 0 || bytes <= 0 ? share : Math.min(share, Math.ceil((1000 * bytes) / seen) / 1000);
    return { ...config, cache: { ...config.cache, gpu_memory_utilization: part } };
  }

  #hostFree(gone: readonly string[]): number {
    const { probe } = this.#options;
    const held = (names: readonly string[]): number => names.reduce((sum, name) => sum + (this.#held.get(name)?.bytes ?? 0), 0);
    const onHost = [...this.#held].filter(([, { device }]) => deviceKinds[device].onHost).map(([name]) => name);
    const grown = Math.max(0, probe.resident() - this.#residentAtStart);
    const untouched = Math.max(0, held(onHost) - grown);
    return probe.hostFree() - untouched + held(onHost.filter((name) => gone.includes(name)));
  }

  /** Of the fullest of the devices. */
  #deviceFree(ids: readonly number[], others: readonly (readonly [string, Held])[], share: number): number {
    const { probe } = this.#options;
    return Math.min(
      ...ids.map((id) => {
        const sharing = others.filter(([, { device, deviceIds }]) => !deviceKinds[device].onHost && deviceIds.includes(id));
        return share * probe.deviceTotal(id) - sharing.reduce((sum, [, { bytes, deviceIds }]) => sum + bytes / deviceIds.length, 0);
      }),
    );
  }
}

/** Of a weight in the files, by what it becomes while it is loaded: blocks of 32 with their scales. */
const quantizedShare = { none: 1, int8: 0.54, int4: 0.29, fp8: 0.51 } as const;
/** Bytes of a key or value. */
const kvBytes = { auto: 4, f32: 4, f16: 2, bf16: 2, fp8: 1, int8: 1 } as const;
/** Above this, the cache of keys and values is half as wide where nothing is said. */
const SMALL_WEIGHTS = 256e6;

/** Of what is free on a host, what the keys and values of one more model may take. */
const PART_OF_FREE = 0.25;
/** At the least so many full contexts, where there is room: what is planned of one is an estimate, and steps need memory too. */
const SPARE = 2;

/** What a model takes at the least. */
export function modelNeed(found: FoundModel): ModelNeed {
  const { model, config } = found;
  const { quantization, dtype } = config.inference;
  const stored = model.config['torch_dtype'] ?? model.config['dtype'];
  // Of a GGUF file the codes that the device can multiply are held as they are, others wider.
  const asStored = isGguf(model.path);
  const wider = !asStored && dtype === 'f32' && stored !== 'float32' ? 2 : 1;
  const share = asStored ? 1 : wider * quantizedShare[quantization];
  const blocks = config.cache.num_gpu_blocks_override ?? Math.ceil(model.maxModelLen / config.cache.block_size);
  // Each group has the whole model, and blocks of its own. Of experts that groups share there is one of each, and little else of such a model.
  const { data_parallel_size: groups, enable_dp_attention: shared } = config.parallel;
  const copies = shared ? 1 : groups;
  return { weights: copies * Math.ceil(model.sizeBytes * share), kv: groups * blocks * blockBytes(found) };
}

/** Bytes of a block of keys and values, about: what config.json says of a usual attention, or of one with a latent (MLA). */
function blockBytes({ model, config }: FoundModel): number {
  const number = (key: string): number | null => (typeof model.config[key] === 'number' ? model.config[key] : null);
  const heads = number('num_attention_heads') ?? 1;
  const layers = number('num_hidden_layers') ?? 1;
  const latent = number('kv_lora_rank');
  // A latent is kept once for all heads, beside the part of the key that has a position.
  const values =
    latent === null
      ? 2 * (number('num_key_value_heads') ?? heads) * (number('head_dim') ?? model.hiddenSize / heads)
      : latent + (number('qk_rope_head_dim') ?? 0);
  const asked = config.cache.cache_dtype === 'auto' && asksForFloat8Cache(model.config) ? 'fp8' : config.cache.cache_dtype;
  const each = asked === 'auto' && model.sizeBytes > SMALL_WEIGHTS ? 2 : kvBytes[asked];
  return layers * values * each * config.cache.block_size;
}

function size(bytes: number): string {
  const mib = bytes / 2 ** 20;
  return mib < 1024 ? `${Math.ceil(mib)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}
