/**
 * The rules that tie options together, which a range of one option cannot say. Pure; called by load.ts after every single value was
 * checked. A rule that needs the model (its context length, its name in the cache) is in models/model-folder.ts; what a backend cannot do
 * (a quantization, a cache type) is for the engine to say, because only it knows the device.
 *
 * Each rule is one function from Config to findings, so that a new rule is one entry in `rules`.
 */

import { isIPv4, isIPv6 } from 'node:net';
import { authModes } from './auth-modes.js';
import type { Config } from './schema.js';

/** Something wrong (error) or likely not meant (warning) with a combination of values. */
export interface Finding {
  readonly severity: 'error' | 'warning';
  /** The "section.key"s that the rule reads, the one to change first. */
  readonly keys: readonly string[];
  /** One sentence that says what to do. */
  readonly message: string;
}

type Rule = (config: Config) => Finding | Finding[] | null;

const error = (keys: readonly string[], message: string): Finding => ({ severity: 'error', keys, message });
const warning = (keys: readonly string[], message: string): Finding => ({ severity: 'warning', keys, message });

/** True for a listen address that other machines cannot reach. */
export function isLoopback(host: string): boolean {
  const name = host
    .toLowerCase()
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '');
  return name === 'localhost' || name === '::1' || name === '0:0:0:0:0:0:0:1' || (isIPv4(name) && name.startsWith('127.'));
}

/** The rule that ties chunking to the context length; also asked again when the model's own limit is known. */
export function batchHoldsPrompt(config: Config, maxModelLen: number): Finding | null {
  const s = config.scheduler;
  if (s.enable_chunked_prefill || s.max_num_batched_tokens >= maxModelLen) return null;
  return error(
    ['scheduler.max_num_batched_tokens', 'scheduler.max_model_len', 'scheduler.enable_chunked_prefill'],
    `scheduler.max_num_batched_tokens = ${s.max_num_batched_tokens} must be at least scheduler.max_model_len = ${maxModelLen} while ` +
      'scheduler.enable_chunked_prefill = false, because a prompt must fit into one step; raise it, lower max_model_len, or turn chunked prefill on',
  );
}

const rules: readonly Rule[] = [
  ({ scheduler: s, ...rest }) => (s.max_model_len === null ? null : batchHoldsPrompt({ scheduler: s, ...rest }, s.max_model_len)),

  ({ scheduler: s }) =>
    s.max_num_batched_tokens >= s.max_num_sequences
      ? null
      : error(
          ['scheduler.max_num_batched_tokens', 'scheduler.max_num_sequences'],
          `scheduler.max_num_batched_tokens = ${s.max_num_batched_tokens} must be at least scheduler.max_num_sequences = ${s.max_num_sequences}, because each running sequence needs one token a step`,
        ),

  ({ cache }) =>
    cache.block_size === 1 || cache.block_size % 16 === 0
      ? null
      : error(
          ['cache.block_size'],
          `cache.block_size = ${cache.block_size} is not allowed; expected 1 or a multiple of 16 up to 256 tokens`,
        ),

  ({ inference: { device_ids: ids, device }, parallel }) => {
    const { tensor_parallel_size: ranks, data_parallel_size: groups } = parallel;
    if (!Number.isInteger(Math.log2(ranks)))
      return error(['parallel.tensor_parallel_size'], `parallel.tensor_parallel_size = ${ranks} is not allowed; expected 1, 2, 4 or 8`);
    if (parallel.expert_parallel && ranks === 1 && !parallel.enable_dp_attention)
      return error(
        ['parallel.expert_parallel', 'parallel.tensor_parallel_size'],
        'parallel.expert_parallel = true shares experts out over ranks, and parallel.tensor_parallel_size = 1 is one rank; set it to 2, 4 or 8',
      );
    if (ids.length === 0)
      return error(['inference.device_ids'], 'inference.device_ids = [] is not allowed; name at least one device, for example [0]');
    const twice = ids.find((id, i) => ids.indexOf(id) !== i);
    if (twice !== undefined)
      return error(['inference.device_ids'], `inference.device_ids names device ${twice} twice; name each device once`);
    if (device === 'cpu' && ids.length > 1)
      return error(
        ['inference.device_ids', 'inference.device'],
        `inference.device_ids names ${ids.length} devices, but inference.device = "cpu" is one device; use [0], or set inference.threads`,
      );
    if (ids.length !== ranks * groups && (device === 'cuda' || ids.length > 1))
      return error(['inference.device_ids', 'parallel.tensor_parallel_size'], oneDeviceARank(ids, parallel));
    return null;
  },

  dpAttentionRule,
  ({ inference: { device }, parallel: { all_reduce: way, tensor_parallel_size: ranks } }) => {
    if (way === 'auto' || (ranks > 1 && device !== 'cpu')) return null;
    const why = device === 'cpu' ? 'inference.device = "cpu"' : 'parallel.tensor_parallel_size = 1';
    return warning(
      ['parallel.all_reduce', device === 'cpu' ? 'inference.device' : 'parallel.tensor_parallel_size'],
      `parallel.all_reduce = "${way}" has no effect while ${why}; it says how several GPUs add up what they computed`,
    );
  },

  ({ speculative: { ngram_min: min, ngram_max: max } }) =>
    min <= max
      ? null
      : error(
          ['speculative.ngram_min', 'speculative.ngram_max'],
          `speculative.ngram_min = ${min} must be at most speculative.ngram_max = ${max}`,
        ),

  ({ lora: { preload } }) => {
    const wrong = preload.find((entry: string) => !/^[^=]+=.+$/.test(entry));
    return wrong === undefined ? null : error(['lora.preload'], `lora.preload has ${JSON.stringify(wrong)}; each entry must be NAME=PATH`);
  },

  ({ validation: v }) =>
    v.max_input_length === null || v.max_total_tokens === null || v.max_input_length < v.max_total_tokens
      ? null
      : error(
          ['validation.max_input_length', 'validation.max_total_tokens'],
          `validation.max_input_length = ${v.max_input_length} must be less than validation.max_total_tokens = ${v.max_total_tokens}, because an answer needs at least one token`,
        ),

  ({ inference }) =>
    inference.trust_remote_code
      ? error(
          ['inference.trust_remote_code'],
          'inference.trust_remote_code = true is refused: inferd never runs code that comes with a model; set it to false, the architectures it knows need none',
        )
      : null,

  ({ inference: { revision } }) =>
    /^[A-Za-z0-9][\w./-]{0,127}$/.test(revision) && !revision.includes('..')
      ? null
      : error(
          ['inference.revision'],
          `inference.revision = ${JSON.stringify(revision.slice(0, 64))} is not allowed; expected a branch, tag or commit of at most 128 letters, digits, ".", "_", "-" or "/"`,
        ),

  swapRules,
  serverRules,
  authRules,

  ({ metrics: { otlp_endpoint: url } }) =>
    url === null || (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol))
      ? null
      : error(
          ['metrics.otlp_endpoint'],
          `metrics.otlp_endpoint = ${JSON.stringify(url.slice(0, 64))} is not allowed; expected the address of a collector, such as "http://127.0.0.1:4318"`,
        ),

  notYetBuilt,
];

/** Also for those who know later than this that the ranks run on GPUs. */
export function oneDeviceARank(ids: readonly number[], parallel: Config['parallel']): string {
  const { tensor_parallel_size: ranks, data_parallel_size: groups } = parallel;
  const named = ids.length === 1 ? '1 device' : `${ids.length} devices`;
  if (groups > 1)
    return `inference.device_ids names ${named}, but parallel.tensor_parallel_size = ${ranks} and data_parallel_size = ${groups} need one for each rank of each group; name ${ranks * groups}`;
  return `inference.device_ids names ${named}, but parallel.tensor_parallel_size = ${ranks} needs one for each rank; name ${ranks} or set the size to ${ids.length}`;
}

/** All findings on a configuration whose single values are allowed. */
export function checkConfig(config: Config): readonly Finding[] {
  return rules.flatMap((rule) => rule(config) ?? []);
}

/** Whether the model has experts is for the engine to say, which reads it. */
function dpAttentionRule({ parallel: p, inference: { device } }: Config): Finding | null {
  if (!p.enable_dp_attention) return null;
  const on = 'parallel.enable_dp_attention = true';
  if (p.data_parallel_size === 1)
    return error(
      ['parallel.enable_dp_attention', 'parallel.data_parallel_size'],
      `${on} is for groups that share experts, and parallel.data_parallel_size = 1 is one group; set it to 2 or more`,
    );
  if (p.tensor_parallel_size > 1)
    return error(
      ['parallel.enable_dp_attention', 'parallel.tensor_parallel_size'],
      `${on} has the attention of each group whole, and parallel.tensor_parallel_size = ${p.tensor_parallel_size} splits it; set that to 1 and data_parallel_size to ${p.tensor_parallel_size * p.data_parallel_size}`,
    );
  if (!p.expert_parallel)
    return error(
      ['parallel.enable_dp_attention', 'parallel.expert_parallel'],
      `${on} has the groups share experts whole; set parallel.expert_parallel = true as well`,
    );
  if (device === 'cuda')
    return error(
      ['parallel.enable_dp_attention', 'inference.device'],
      `${on} runs on the CPU only in this version; set inference.device = "cpu"`,
    );
  return null;
}

function swapRules({ cache, scheduler }: Config): Finding[] {
  const findings: Finding[] = [];
  const { swap_space_fraction: fraction, swap_space_bytes: bytes } = cache;
  const none = bytes === 0 || (bytes === null && fraction === null);
  if (scheduler.preemption_mode === 'swap' && none)
    findings.push(
      error(
        ['scheduler.preemption_mode', 'cache.swap_space_bytes', 'cache.swap_space_fraction'],
        'scheduler.preemption_mode = "swap" needs swap space; set cache.swap_space_fraction (for example 0.1) or cache.swap_space_bytes',
      ),
    );
  if (scheduler.preemption_mode === 'recompute' && !none)
    findings.push(
      warning(
        [bytes === null ? 'cache.swap_space_fraction' : 'cache.swap_space_bytes', 'scheduler.preemption_mode'],
        'swap space has no effect while scheduler.preemption_mode = "recompute"; set it to "auto" or "swap"',
      ),
    );
  if (fraction !== null && bytes !== null)
    findings.push(
      warning(
        ['cache.swap_space_fraction', 'cache.swap_space_bytes'],
        `cache.swap_space_fraction = ${fraction} is ignored, because cache.swap_space_bytes = ${bytes} is set`,
      ),
    );
  else if (fraction !== null && fraction > 0.4)
    findings.push(
      warning(['cache.swap_space_fraction'], `cache.swap_space_fraction = ${fraction} takes more than 0.4 of the free host memory`),
    );
  return findings;
}

/** Longest path of a Unix socket on Linux; macOS takes three less. */
const maxSocketPath = 104;

function serverRules({ server, auth }: Config): Finding[] {
  const findings: Finding[] = [];
  const literal = isIPv6(server.host);
  const named = /^(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*\.?$/.test(server.host);
  if (!literal && !named)
    findings.push(
      error(
        ['server.host'],
        `server.host = ${JSON.stringify(server.host.slice(0, 64))} is not allowed; expected an IP address or a host name without port`,
      ),
    );
  else if (authModes(auth.mode).length === 0 && !isLoopback(server.host))
    findings.push(
      error(
        ['server.host', 'auth.mode'],
        `server.host = ${JSON.stringify(server.host)} is reachable from other machines, so auth.mode = "none" is refused; set auth.mode = "token", or server.host = "127.0.0.1"`,
      ),
    );
  if (server.unix_socket !== null && Buffer.byteLength(server.unix_socket) > maxSocketPath)
    findings.push(
      error(
        ['server.unix_socket'],
        `server.unix_socket is ${Buffer.byteLength(server.unix_socket)} bytes long; expected a path of at most ${maxSocketPath} bytes, which is what systems allow`,
      ),
    );
  return findings;
}

function authRules({ auth }: Config): Finding[] {
  const findings: Finding[] = [];
  if (typeof auth.mode !== 'string' && auth.mode.includes('none') && auth.mode.length > 1)
    findings.push(error(['auth.mode'], 'auth.mode lists "none" beside others; "none" alone asks nobody, the others alone ask everybody'));
  if (!authModes(auth.mode).includes('ed25519') && auth.trusted_keys.length > 0)
    findings.push(
      warning(
        ['auth.trusted_keys', 'auth.mode'],
        'auth.trusted_keys has no effect while auth.mode does not have "ed25519"; add it to the list',
      ),
    );
  if (authModes(auth.mode).length === 0 && auth.token_file !== null)
    findings.push(
      warning(
        ['auth.token_file', 'auth.mode'],
        'auth.token_file has no effect while auth.mode = "none"; set auth.mode = "token" to ask for it',
      ),
    );
  for (const origin of auth.allowed_origins)
    if (!/^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@*]+$/.test(origin))
      findings.push(
        error(
          ['auth.allowed_origins'],
          `auth.allowed_origins holds ${JSON.stringify(origin.slice(0, 64))}; expected scheme://host or scheme://host:port in lower case, without path and without "*"`,
        ),
      );
  for (const host of auth.allowed_hosts)
    if (!/^([a-z0-9_.-]+|\[?[0-9a-f:.]+\]?)$/i.test(host) && !isRange(host))
      findings.push(
        error(
          ['auth.allowed_hosts'],
          `auth.allowed_hosts holds ${JSON.stringify(host.slice(0, 64))}; expected a host name, an address or a range such as 192.168.1.0/24, without scheme and port`,
        ),
      );
  return findings;
}

/** An address and how many of its bits count. */
function isRange(text: string): boolean {
  const [, address = '', bits] = /^([0-9a-f.:]+)\/(\d{1,3})$/i.exec(text) ?? [];
  return bits !== undefined && ((isIPv4(address) && Number(bits) <= 32) || (isIPv6(address) && Number(bits) <= 128));
}

/** Options that are part of the file format but change nothing in this version; saying so is better than pretending. */
function notYetBuilt(config: Config): Finding[] {
  const findings: Finding[] = [];
  const say = (key: string, message: string) => findings.push(warning([key], message));
  const noDownloads = 'has no effect in this version, which does not download models';
  if (config.inference.flush_storage) say('inference.flush_storage', `inference.flush_storage ${noDownloads}`);
  if (config.inference.api_key !== null) say('inference.api_key', `inference.api_key ${noDownloads}`);
  return findings;
}
