/**
 * The only list of inferd's options: section, key, type, unit, default, range and one line of doc.
 *
 * Everything else derives from this table: the `Config` type, validation and its error texts, the commented file of
 * `inferd config init`, `inferd config show`, the table of config/README.md and the JSON Schema. The four sections `inference`, `cache`,
 * `scheduler` and `validation` keep the keys and meaning of Atoma Infer, so that its files run here.
 *
 * Pure data and types; imported by every thread.
 */

export interface NumberRange {
  readonly min: number;
  readonly max: number;
}

interface OptionBase<T> {
  /** One line, a full sentence, what the option does. */
  readonly doc: string;
  /** `null` means "not set": the option is then absent or derived at start-up, as `doc` says. */
  readonly default: T;
  /** Unit of the value, as printed in tables: "tokens", "bytes", "s", "ms". */
  readonly unit?: string;
  /** Never printed in clear by `config show` or a log. */
  readonly secret?: true;
}

export interface StringOption<T extends string | null = string | null> extends OptionBase<T> {
  readonly type: 'string';
}
export interface EnumOption<V extends string = string> extends OptionBase<V> {
  readonly type: 'enum';
  readonly values: readonly V[];
}
/** One of the values, or a list of them. */
export interface EnumListOption<V extends string = string> extends OptionBase<V | readonly V[]> {
  readonly type: 'enum[]';
  readonly values: readonly V[];
}
export interface BoolOption extends OptionBase<boolean> {
  readonly type: 'bool';
}
export interface NumberOption<T extends number | null = number | null> extends OptionBase<T>, NumberRange {
  readonly type: 'int' | 'float';
}
export interface IntListOption extends OptionBase<readonly number[]>, NumberRange {
  readonly type: 'int[]';
}
export interface StringListOption extends OptionBase<readonly string[]> {
  readonly type: 'string[]';
}
export type Option = StringOption | EnumOption | EnumListOption | BoolOption | NumberOption | IntListOption | StringListOption;

type Extra = { readonly unit?: string; readonly secret?: true };

const text = <T extends string | null>(value: T, doc: string, extra: Extra = {}): StringOption<T> => ({
  type: 'string',
  default: value,
  doc,
  ...extra,
});
const someOf = <const V extends string>(values: readonly V[], value: V, doc: string): EnumListOption<V> => ({
  type: 'enum[]',
  values,
  default: value,
  doc,
});
const oneOf = <const V extends string>(values: readonly V[], value: V, doc: string): EnumOption<V> => ({
  type: 'enum',
  values,
  default: value,
  doc,
});
const bool = (value: boolean, doc: string): BoolOption => ({ type: 'bool', default: value, doc });
const int = <T extends number | null>(value: T, range: readonly [number, number], doc: string, extra: Extra = {}): NumberOption<T> => ({
  type: 'int',
  default: value,
  min: range[0],
  max: range[1],
  doc,
  ...extra,
});
const float = <T extends number | null>(value: T, range: readonly [number, number], doc: string, extra: Extra = {}): NumberOption<T> => ({
  type: 'float',
  default: value,
  min: range[0],
  max: range[1],
  doc,
  ...extra,
});
const ints = (value: readonly number[], range: readonly [number, number], doc: string): IntListOption => ({
  type: 'int[]',
  default: value,
  min: range[0],
  max: range[1],
  doc,
});
const texts = (value: readonly string[], doc: string): StringListOption => ({ type: 'string[]', default: value, doc });

const maybe = (value: number | null): number | null => value;
const maybeText = (value: string | null): string | null => value;
const GiB = 2 ** 30;

export const schema = {
  inference: {
    model_name: text(
      'demo',
      'Model to serve: "demo" (embedded), a folder, a *.gguf file, or a Hugging Face id found in the cache, as org/name:Q4_K_M of its GGUF files.',
    ),
    revision: text('main', 'Revision of a Hugging Face model: branch, tag or commit.'),
    api_key: text(maybeText(null), 'Hugging Face token; HF_TOKEN is used when this is not set.', { secret: true }),
    cache_dir: text(maybeText(null), 'Folder of the Hugging Face cache; HF_HUB_CACHE or HF_HOME/hub when not set.'),
    flush_storage: bool(
      false,
      'Delete the downloaded model from the cache when the daemon stops; no effect yet: "inferd rm" deletes a model.',
    ),
    device: oneOf(['auto', 'cpu', 'cuda'], 'auto', 'Backend that runs the model; auto takes CUDA when a usable GPU is found.'),
    device_ids: ints(
      [0],
      [0, 63],
      'GPU to use; one for each rank of parallel.tensor_parallel_size, in their order, and that for each group of parallel.data_parallel_size.',
    ),
    dtype: oneOf(['auto', 'f32', 'f16', 'bf16'], 'auto', 'Type the weights are held in; auto keeps the type of the checkpoint.'),
    num_tokenizer_workers: int(1, [1, 64], 'Tokenizer actors, each on its own thread.'),
    load_dummy: bool(
      false,
      'Random weights in the shape of config.json, in the format that it says they are quantized in, instead of reading a checkpoint.',
    ),
    quantization: oneOf(['none', 'int8', 'int4', 'fp8'], 'none', 'Quantize the weights on the fly while loading.'),
    threads: int(
      0,
      [0, 1024],
      'Compute threads of the CPU backend, of all ranks and groups together; 0 takes the number of physical cores.',
    ),
    served_model_name: text(maybeText(null), 'Name the API reports and accepts; the model name when not set.'),
    enforce_eager: bool(false, 'Do not capture CUDA graphs.'),
    cuda_graph_sizes: ints([1, 2, 4, 8, 16, 32, 48, 64, 128, 192, 256], [1, 4096], 'Decode batch sizes that are captured as CUDA graphs.'),
    cuda_graph_prefill_sizes: ints(
      [16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512],
      [1, 1024],
      'Tokens of the other steps that are captured: those with prompts, alone or beside decoding. An empty list captures none.',
    ),
    tool_call_parser: oneOf(
      ['auto', 'none', 'harmony', 'hermes', 'llama3_json', 'mistral', 'mistral_list', 'granite', 'pythonic'],
      'auto',
      'Format in which the model writes calls of tools; auto finds it from the chat template.',
    ),
    reasoning_parser: oneOf(
      ['auto', 'none', 'think', 'mistral'],
      'auto',
      'Markers around the reasoning of the model, <think> or [THINK]; auto finds them in the chat template.',
    ),
    pooling: oneOf(
      ['last', 'mean'],
      'last',
      'How hidden states become an embedding, of the last token or the mean of all, where the model has no sentence-transformers files.',
    ),
    trust_remote_code: bool(false, 'Always refused: inferd never runs code that comes with a model.'),
  },
  parallel: {
    tensor_parallel_size: int(
      1,
      [1, 8],
      'Ranks that compute a model together, each with a share of its weights and KV cache: 1, 2, 4 or 8; on the CPU they share the threads, on GPUs each ' +
        'has one of inference.device_ids, which have to reach the memory of each other, or have NCCL (all_reduce).',
    ),
    data_parallel_size: int(
      1,
      [1, 16],
      'Groups that each hold the whole model, on ranks of their own, behind one queue: a request goes to the one whose prefix cache ' +
        'knows most of it, unless that has much more to do. On the CPU they share the threads and the memory.',
    ),
    expert_parallel: bool(
      false,
      'The ranks of a model with experts share them out: each computes some of them whole, in place of a part of every one. Attention is split as before.',
    ),
    enable_dp_attention: bool(
      false,
      'The groups of data_parallel_size share the experts of the model in place of holding them all: each attends to requests of its own, and ' +
        'with expert_parallel computes some of the experts for the requests of all. For models with experts, on the CPU; the groups then end ' +
        'and start together.',
    ),
    all_reduce: oneOf(
      ['auto', 'own', 'nccl'],
      'auto',
      'What carries the sums of ranks on GPUs. own: the kernels of inferd, over the memory of each other. nccl: NVIDIA NCCL 2.19 or newer, ' +
        'which is found as libnccl.so.2 or named by the environment as INFERD_NCCL. auto: own where the GPUs reach the memory of each other, else nccl.',
    ),
    comm_timeout_ms: int(
      10_000,
      [100, 600_000],
      'A rank that waits longer for the others in a step ends the engine, which starts again. With enable_dp_attention it waits for as long as ' +
        'another computes a layer of its largest step.',
      {
        unit: 'ms',
      },
    ),
  },
  speculative: {
    method: oneOf(
      ['none', 'ngram', 'draft', 'eagle3', 'mtp'],
      'none',
      'How tokens are drafted ahead of the model, which then checks several in one step; answers stay what they are. ' +
        'ngram: what followed the last tokens where they stood before. draft: by a small model. eagle3: by a head of EAGLE or EAGLE-3. ' +
        'mtp: by the layer for multi-token prediction that checkpoints of DeepSeek V3 have.',
    ),
    model: text(
      maybeText(null),
      'What drafts, for draft and eagle3: a folder or Hugging Face id. A small model must have the tokenizer of the model.',
    ),
    num_tokens: int(4, [1, 15], 'Tokens drafted for a sequence and step, at most; fewer in large batches, and where drafts are refused.', {
      unit: 'tokens',
    }),
    max_batch: int(64, [1, 1024], 'Sequences that run, above which nothing is drafted.'),
    forced_acceptance: float(
      maybe(null),
      [0, 1],
      'For benchmarks: behind a draft that is accepted this share of the next ones is, right or not. Answers then mean nothing.',
    ),
    ngram_min: int(1, [1, 32], 'The fewest last tokens that are looked for.', { unit: 'tokens' }),
    ngram_max: int(3, [1, 32], 'The most last tokens that are looked for.', { unit: 'tokens' }),
  },
  lora: {
    enabled: bool(
      false,
      'Serve adapters (LoRA) beside the model: requests name one as their model. Takes room on the device, and nothing else until one is used.',
    ),
    folders: texts([], 'Adapters may be loaded from inside of these folders only.'),
    max_loras: int(
      8,
      [1, 256],
      'Adapters that can run at the same time; others of those that are loaded wait for the place of one that nobody uses.',
    ),
    max_rank: int(64, [1, 512], 'The largest rank of an adapter.'),
    max_adapters: int(64, [1, 4096], 'Adapters that may be loaded; they are kept in host memory.'),
    preload: texts([], 'Adapters to load with the model, each as NAME=PATH.'),
  },
  cache: {
    block_size: int(16, [1, 256], 'Tokens in one KV block: 1, or a multiple of 16.', { unit: 'tokens' }),
    cache_dtype: oneOf(
      ['auto', 'bf16', 'f16', 'f32', 'fp8', 'int8'],
      'auto',
      'Type of the KV cache; auto is, on the CPU, fp8 where the kv_cache_scheme of the model asks for it, f32 for a small model, else bf16, ' +
        'and the type of the weights on a GPU. fp8 is e4m3, divided by the scales of the checkpoint where it has some; int8 has a scale per ' +
        'token and head.',
    ),
    gpu_memory_utilization: float(
      0.9,
      [0.01, 1],
      'Share of total device memory for weights, activations and KV cache (on the CPU: of free memory).',
    ),
    swap_space_fraction: float(maybe(null), [0.001, 0.7], 'Share of free host memory for swapped KV blocks.'),
    swap_space_bytes: int(maybe(null), [0, 1024 * GiB], 'Host memory for swapped KV blocks; wins over swap_space_fraction.', {
      unit: 'bytes',
    }),
    num_gpu_blocks_override: int(
      maybe(null),
      [2, 2 ** 24],
      'KV blocks to allocate instead of the computed number, on any device and in each group.',
      {
        unit: 'blocks',
      },
    ),
    sliding_window: int(
      maybe(null),
      [1, 2 ** 20],
      'Attention window in place of the one in config.json, in the layers that have one, or in all where none has.',
      { unit: 'tokens' },
    ),
    enable_prefix_caching: bool(true, 'Reuse KV blocks of prompts and answers that begin alike.'),
  },
  scheduler: {
    max_num_batched_tokens: int(2048, [1, 2 ** 20], 'Token budget of one step.', { unit: 'tokens' }),
    mixed_step_tokens: int(
      0,
      [0, 2 ** 20],
      'The same of a step in which prompts are prefilled beside sequences that decode, which wait for them: fewer make tokens come more evenly. ' +
        'Up to twice as many while others wait to begin. A quarter is for prompts, however many decode. 0: 1024 on a GPU, 128 on the CPU.',
      { unit: 'tokens' },
    ),
    max_num_sequences: int(64, [1, 4096], 'Sequences that run at the same time, in each group of parallel.data_parallel_size.'),
    max_model_len: int(maybe(null), [1, 2 ** 24], "Prompt plus answer, at most; never more than the model's own limit.", {
      unit: 'tokens',
    }),
    delay_factor: float(0, [0, 100], 'Wait this many times the last prompt step before the next prompts are admitted.'),
    enable_chunked_prefill: bool(true, 'Split long prompts over steps and mix them with decoding.'),
    policy: oneOf(['fcfs', 'priority'], 'fcfs', 'Order of waiting requests; among equals clients take turns.'),
    preemption_mode: oneOf(
      ['auto', 'recompute', 'swap'],
      'auto',
      'What becomes of the KV of a request that must give way: swap keeps it on the host while there is room, auto does where that costs less.',
    ),
    max_queue: int(1024, [0, 2 ** 20], 'Requests that may wait, in all groups together; one more is refused.', { unit: 'requests' }),
    queue_timeout_s: float(120, [0.01, 86_400], 'A request that waits longer is refused.', { unit: 's' }),
    kept_timelines: int(256, [0, 65_536], 'Ended requests of which requests.get still tells what happened when.', { unit: 'requests' }),
    spin_us: int(
      0,
      [0, 1000],
      'How long the threads of the scheduler and of the executors look for what is about to come before they sleep: a prompt that is being ' +
        'encoded, a plan, the end of a step. A thread that sleeps takes some tens of microseconds to wake, so the first token and every other one ' +
        'come sooner; each request and each step cost up to as much processor time in two threads. Nothing is spent while no request runs. ' +
        '0: they sleep at once. Beside an H100 200 took 0.1 to 0.2 ms off a first token that comes after 8.',
      { unit: 'us' },
    ),
    hang_timeout_s: float(
      60,
      [1, 3600],
      'An actor without progress for this long is ended; its requests fail, retriable. A step gets 20 times the mean, if that is longer.',
      { unit: 's' },
    ),
  },
  validation: {
    best_of: int(8, [1, 64], 'Largest best_of a request may ask for.'),
    max_stop_sequences: int(16, [0, 256], 'Most stop strings and stop token ids of a request.'),
    max_top_n_tokens: int(20, [0, 20], 'Largest top_logprobs a request may ask for.'),
    max_input_length: int(maybe(null), [1, 2 ** 24], 'Longest prompt; max_model_len - 1 when not set.', { unit: 'tokens' }),
    max_total_tokens: int(maybe(null), [2, 2 ** 24], 'Prompt plus max_tokens, at most; max_model_len when not set.', { unit: 'tokens' }),
    max_n: int(8, [1, 64], 'Largest n a request may ask for.'),
    max_embedding_inputs: int(2048, [1, 4096], 'Most inputs of one call for embeddings.'),
    max_reported_logprobs: int(
      3_000_000,
      [1, 2 ** 30],
      'Log-probabilities that one answer may report, alternatives included; all answers that are not written yet hold four times as many.',
    ),
  },
  structured_output: {
    max_schema_bytes: int(256 * 1024, [1024, 16 * 2 ** 20], 'Largest schema, grammar or list of choices of a request.', { unit: 'bytes' }),
    max_depth: int(64, [4, 256], 'Deepest nesting of a schema, and of groups in a pattern.'),
    max_rules: int(4000, [16, 100_000], 'Most different parts of a schema, combinations of them included.'),
    max_states: int(100_000, [1000, 10_000_000], 'Most states of the automata of the patterns, ranges and counts of a schema.'),
    max_enum: int(2000, [1, 100_000], 'Most members of an enum, or choices.'),
    max_pattern_length: int(1000, [16, 65_536], 'Longest pattern.', { unit: 'characters' }),
    max_repeat: int(
      512,
      [16, 65_536],
      'Largest count in a pattern; strings and lists that may be longer by a maximum of the schema are kept to it.',
    ),
    max_value_depth: int(16, [1, 64], 'Nesting of JSON values that no schema describes, as with response_format json_object.'),
    max_grammar_bytes: int(2 ** 20, [4096, 64 * 2 ** 20], 'Largest grammar that is made of a schema or a pattern.', { unit: 'bytes' }),
    deadline_ms: int(500, [10, 60_000], 'Time to turn a schema into a grammar.', { unit: 'ms' }),
    max_compiled_states: int(2 ** 18, [1000, 2 ** 24], 'Most states of a compiled grammar.'),
    max_compiled_bytes: int(256 * 2 ** 20, [2 ** 20, 2 ** 36], 'Most memory of a compiled grammar.', { unit: 'bytes' }),
    compile_deadline_ms: int(4000, [10, 60_000], 'Time to compile a grammar.', { unit: 'ms' }),
  },
  server: {
    host: text('127.0.0.1', 'Address to listen on; anything but loopback needs auth.mode = "token".'),
    port: int(8765, [0, 65_535], 'TCP port for WebSocket and HTTP; 0 takes a free one.'),
    unix_socket: text(maybeText(null), 'Path of a Unix socket to listen on as well.'),
    max_connections: int(256, [1, 65_536], 'Open WebSocket connections.'),
    max_message_bytes: int(4 * 2 ** 20, [1024, GiB], 'Largest message of a client.', { unit: 'bytes' }),
    max_requests_per_connection: int(256, [1, 65_536], 'Unanswered requests of one connection.'),
    slow_client_timeout_s: float(30, [0.05, 3600], 'A stream whose client takes nothing for this long is ended.', { unit: 's' }),
    ping_interval_s: float(15, [0.05, 3600], 'Time between WebSocket pings; a missed pong closes the connection.', { unit: 's' }),
    drain_timeout_s: float(30, [0, 3600], 'Time that running requests get to finish when the daemon stops.', { unit: 's' }),
    web_ui: bool(true, 'Serve the web pages at / and /docs.'),
    ollama_api: bool(true, "Answer Ollama's routes under /api."),
  },
  auth: {
    mode: someOf(
      ['none', 'token', 'ed25519'],
      'none',
      'How clients prove who they are; any of a list suffices. ed25519: they sign their requests.',
    ),
    token_file: text(
      maybeText(null),
      "File with the daemon's own token, which may do all; made (mode 0600) in the runtime folder when not set.",
    ),
    allowed_hosts: texts(
      [],
      'Names, addresses and ranges (192.168.1.0/24) accepted in the Host header besides loopback and, unless mode is none, the address asked.',
    ),
    allowed_origins: texts([], 'Browser origins (scheme://host:port) that may connect.'),
    trusted_keys: texts([], 'Files NAME.pem with public keys for auth.mode = "ed25519", besides those of "inferd key add".'),
    max_nonces: int(
      100_000,
      [1, 10_000_000],
      'Signed requests of one key within its minute; more are refused, so that none can be repeated.',
    ),
  },
  hub: {
    max_connections: int(8, [1, 16], 'Connections that one download uses at a time.'),
    max_parallel_files: int(4, [1, 16], 'Files of one download that are fetched at a time.'),
    max_part_bytes: int(
      16 * 2 ** 20,
      [64 * 1024, GiB],
      'Largest part of a file that is asked for at once; parts are small, 1 MiB on all connections together, where that costs no time.',
      { unit: 'bytes' },
    ),
    max_files: int(10_000, [1, 100_000], 'Most files of a repository.'),
    max_downloads: int(2, [1, 16], 'Downloads that the daemon runs at a time; one more is refused.'),
    timeout_s: float(30, [0.1, 3600], 'A connection to the hub on which nothing comes for this long is given up and made again.', {
      unit: 's',
    }),
    max_retries: int(6, [0, 100], 'Tries that may fail in a row, with growing waits between them, before a download gives up.'),
    max_retry_wait_s: float(300, [0, 86_400], 'Longest wait that the hub may ask for with Retry-After.', { unit: 's' }),
  },
  models: {
    directories: texts(
      [],
      'Folders whose sub-folders and *.gguf files are models, named as the sub-folder or as the file without its ending.',
    ),
    load_on_demand: bool(true, 'Load a model when a request names it; else models are loaded at the start and by models.load only.'),
    max_loaded: int(4, [1, 64], 'Models that are loaded at the same time; for one more, the one unused for longest makes room.', {
      unit: 'models',
    }),
    keep_alive_s: float(300, [0, 31_536_000], 'A model that was loaded by a call is unloaded when unused for so long; 0 = never.', {
      unit: 's',
    }),
    pinned: texts([], 'Models that, once loaded, are unloaded by models.unload only.'),
    preload: texts([], 'Models that are loaded at the start, after the default model (inference.model_name).'),
  },
  profile: {
    directory: text(maybeText(null), 'Folder that profiles are written to; "profiles" in the state folder when not set.'),
    at_start: bool(false, 'Record from the moment the engine is ready.'),
    max_seconds: float(300, [1, 86_400], 'A recording ends by itself after this, and is written.', { unit: 's' }),
    max_events: int(1_000_000, [1000, 50_000_000], 'Events that each actor and each device has room for; more are counted and left out.', {
      unit: 'events',
    }),
  },
  metrics: {
    open: bool(false, 'Answer GET /metrics without a token, whatever auth.mode says.'),
    otlp_endpoint: text(
      maybeText(null),
      'OpenTelemetry collector that gets a span for each request, OTLP over HTTP, such as http://127.0.0.1:4318; none when not set.',
    ),
  },
  log: {
    level: oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'info', 'Least severe level that is logged.'),
    pretty: oneOf(['auto', 'always', 'never'], 'auto', 'Readable lines instead of JSON; auto does so on a terminal.'),
  },
} as const;

type Schema = typeof schema;
type Widen<T> = T extends number ? number : T extends boolean ? boolean : T extends string ? string : T;
type ValueOf<O> =
  O extends EnumOption<infer V>
    ? V
    : O extends EnumListOption<infer V>
      ? V | readonly V[]
      : O extends { readonly default: infer D }
        ? Widen<D>
        : never;

/** The effective configuration: frozen, plain data, safe to post to a thread. Keys are those of the TOML file. */
export type Config = { readonly [S in keyof Schema]: { readonly [K in keyof Schema[S]]: ValueOf<Schema[S][K]> } };
export type SectionName = keyof Schema;
