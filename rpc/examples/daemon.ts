/** Calls of the methods that tell of the daemon, its models, its load and its requests, or steer them. */
import type { Example } from '../method.js';

const model = {
  id: 'demo',
  object: 'model',
  created: 1764000000,
  owned_by: 'inferd',
  root: 'demo',
  parent: null,
  max_model_len: 4096,
  architecture: 'LlamaForCausalLM',
  format: 'BF16',
  size_bytes: 14696792,
  vocab_size: 4096,
  state: 'ready',
  pinned: false,
  last_used: 1764000060,
  memory_bytes: 149422080,
  failure: null,
  dtype: 'bf16',
  kv_dtype: 'f32',
  backend: 'cpu avx2 x8',
  parameters: 7344384,
};
const limits = {
  max_message_bytes: 4194304,
  max_requests_per_connection: 256,
  max_batch_members: 32,
  max_model_len: 4096,
  max_input_length: 4095,
  max_total_tokens: 4096,
  max_n: 8,
  max_best_of: 8,
  max_stop_sequences: 16,
  max_top_logprobs: 20,
  max_reported_logprobs: 3000000,
  max_embedding_inputs: 2048,
};

/** A call that takes nothing. */
const plain = (name: string, result: unknown): readonly Example[] => [{ name, params: {}, result }];

export const initializeExamples: readonly Example[] = [
  {
    name: 'An introduction',
    params: { client: { name: 'my-editor', version: '1.0.0' }, protocol: 1, capabilities: { deltaHead: true } },
    result: {
      server: { name: 'inferd', version: '0.1.0' },
      protocol: 1,
      capabilities: { streaming: true, credit: true, batchNotifications: false, deltaHead: true, cancel: true, batches: true },
      model,
      limits,
    },
  },
];

export const pingExamples = plain('A ping', {});
export const discoverExamples = plain('This document, in short', { openrpc: '1.3.2', info: { title: 'inferd', version: '0.1.0' } });
export const drainExamples = plain('The end', {});
export const infoExamples = plain('The state of the daemon', {
  name: 'inferd',
  version: '0.1.0',
  protocol: 1,
  node: 'v20.19.0',
  platform: 'linux-x64',
  pid: 4321,
  started_at: '2026-11-22T16:00:00.000Z',
  uptime_s: 12.5,
  state: 'ready',
  healthy: true,
  model,
  limits,
});

export const modelsListExamples = plain('What is served', { object: 'list', data: [model] });
const unloaded = {
  ...model,
  state: 'unloaded',
  last_used: null,
  memory_bytes: null,
  dtype: null,
  kv_dtype: null,
  backend: null,
  parameters: null,
};
export const modelsLoadExamples: readonly Example[] = [{ name: 'The demo model', params: { model: 'demo' }, result: model }];
export const modelsUnloadExamples: readonly Example[] = [{ name: 'The demo model', params: { model: 'demo' }, result: unloaded }];
export const modelsGetExamples: readonly Example[] = [{ name: 'The demo model', params: { model: 'demo' }, result: model }];

const pirate = { name: 'pirate', path: '/srv/adapters/pirate', parent: 'demo', rank: 8, modules: 56 };
export const adaptersLoadExamples: readonly Example[] = [
  { name: 'A pirate', params: { name: 'pirate', path: 'lora' }, result: { ...pirate, state: 'loaded' } },
];
export const adaptersListExamples = plain('The pirate', { data: [{ ...pirate, state: 'loaded' }] });
export const adaptersUnloadExamples: readonly Example[] = [
  { name: 'The pirate', params: { name: 'pirate' }, result: { ...pirate, state: 'unloaded' } },
];

export const loadFaceExamples: readonly Example[] = [
  {
    name: 'A pirate',
    params: { lora_name: 'pirate', lora_path: 'lora' },
    result: "Success: LoRA adapter 'pirate' added successfully.",
  },
];
export const unloadFaceExamples: readonly Example[] = [
  { name: 'The pirate', params: { lora_name: 'pirate' }, result: "Success: LoRA adapter 'pirate' removed successfully." },
];

export const modelsPullExamples: readonly Example[] = [
  {
    name: 'The embedded model, which is there already',
    params: { model: 'demo' },
    result: { model: 'demo', state: 'pulled', revision: null, path: '/opt/inferd/config/demo-model', files: 5, bytes: 14696792 },
  },
];
export const modelsDeleteExamples: readonly Example[] = [
  { name: 'A model that is not there', params: { model: 'org/name' }, result: { model: 'org/name', deleted: false, bytes: 0 } },
];

const stats = {
  requests: { running: 0, waiting: 0, swapped: 0, finished_total: 3, aborted_total: 0, preempted_total: 0 },
  kv: { block_size: 16, total_blocks: 16384, used_blocks: 0, cached_blocks: 4, free_blocks: 16380, swap_total: 0, swap_used: 0 },
  tokens: { prompt_total: 57, generated_total: 36, prefix_hit_total: 32 },
  step: { count: 40, p50_ms: 3.1, p99_ms: 7.4 },
  engine: { state: 'ready', healthy: true, uptime_s: 12.5 },
  memory: { rss_bytes: 190000000, heap_used_bytes: 21000000, weight_bytes: 16794624 },
};
export const statsExamples = plain('One look', stats);
export const subscribeExamples: readonly Example[] = [{ name: 'Once a second', params: { interval_ms: 1000 }, result: '1' }];
export const unsubscribeExamples: readonly Example[] = [
  { name: 'A subscription that is not there', params: { subscription: 'none' }, result: false },
];

export const requestsListExamples = plain('Nothing runs', { requests: [] });
export const requestsGetExamples: readonly Example[] = [
  {
    name: 'A request that nobody knows',
    params: { request_id: 'chatcmpl-0c5f9f0e-7f0e-4f6a-9d0a-3c1b7c8f2a11' },
    result: { request: null },
  },
];
export const kvMapExamples: readonly Example[] = [
  {
    name: 'An idle pool in eight cells',
    params: { cells: 8 },
    result: { model: 'demo', block_size: 16, total_blocks: 16384, blocks_per_cell: 2048, cells: 'AQAAAAAAAAA=', owners: [] },
  },
];
export const requestsCancelExamples: readonly Example[] = [
  {
    name: 'A request that is over',
    params: { request_id: 'chatcmpl-0c5f9f0e-7f0e-4f6a-9d0a-3c1b7c8f2a11' },
    result: { request_id: 'chatcmpl-0c5f9f0e-7f0e-4f6a-9d0a-3c1b7c8f2a11', cancelled: false },
  },
];
export const cancelExamples: readonly Example[] = [{ name: 'The call with the id 7', params: { id: 7 }, result: null }];
export const creditExamples: readonly Example[] = [{ name: '128 more tokens', params: { token: 7, n: 128 }, result: null }];

const none = { scheduler: 0, executor: 0, device: 0 };
export const profileStartExamples = plain('A recording', { status: 'recording', files: [] });
export const profileStopExamples = plain('The end of one in which nothing ran', {
  status: 'written',
  files: ['/home/me/.local/state/inferd/profiles/tp0/2026-11-21T09-38-52.119Z.trace.json.gz'],
  ended_by: 'asked',
  summary: [
    {
      rank: 0,
      device: { source: 'ops', note: '' },
      events: { scheduler: 2, executor: 1, device: 0 },
      dropped: none,
      steps: 0,
      decode_steps: 0,
      busy_ms: 0,
      idle_ms: 0,
      idle_share: null,
      median_step_ms: null,
      median_period_ms: null,
    },
  ],
});
