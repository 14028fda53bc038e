/**
 * Which actors there are and what each starts with: plain data made from the configuration and the model folder. actor-units.ts brings it
 * to life; main thread.
 *
 *   tokenizers  one_for_one   each stands alone; its death ends its own requests only
 *   engine      one_for_all   executors 0..R-1, then the scheduler: they share KV blocks and the order of steps
 *
 * There may be several of the latter, data-parallel groups, each with the whole model: they share nothing but the queue's limit. With
 * data-parallel attention they share the experts too, and are one unit (joined-groups.ts).
 *
 * These units start side by side and stop in reverse order; the actors of the engine start in the order written.
 */

import type { KvSettings } from '../../actors/executor/startup.js';
import { InferdError } from '../../actors/messages/errors.js';
import { RESULT, RESULT_POOLED, RESULT_PROMPT, RESULT_SAMPLE, RESULT_TOP } from '../../actors/messages/step.js';
import type { SchedulerOptions } from '../../actors/scheduler/options.js';
import { planWordsLimit } from '../../actors/scheduler/plan-writer.js';
import type { TokenizerStart } from '../../actors/tokenizer/actor.js';
import { grammarLimits } from '../../actors/tokenizer/constrain/grammar-limits.js';
import { asksForFloat8Cache } from '../../config/cache-scheme.js';
import { oneDeviceARank } from '../../config/check.js';
import { isGguf } from '../../config/gguf/files.js';
import type { ModelFolder } from '../../config/models/model-folder.js';
import type { Config } from '../../config/schema.js';
import { deviceKinds } from '../../native/device-kinds.js';
import { type BackendName, type EngineOptions, loadAddon } from '../../native/index.js';

export interface RingSpec {
  readonly capacityBytes: number;
  readonly maxEntryBytes: number;
}

export interface Topology {
  /** More restarts than this within `windowMs` end the engine. */
  readonly restarts: { readonly max: number; readonly windowMs: number };
  readonly tokenizers: readonly TokenizerStart[];
  /** Engine groups, with an executor for each rank. */
  readonly groups: readonly (readonly EngineOptions[])[];
  readonly kv: Omit<KvSettings, 'groups' | 'loading'>;
  /** What is known before the executors have reported their capacity. */
  readonly scheduler: Omit<SchedulerOptions, 'numBlocks' | 'numSwapBlocks' | 'swapCostTokens' | 'epoch'>;
  readonly plans: RingSpec;
  readonly results: RingSpec;
  /** URL of a module with `createEngine` in place of the addon; null = the addon. */
  readonly executorModule: string | null;
  /** Of executors: how long the steps in flight may take at their end. */
  readonly closeLimitMs: number;
  /** How long schedulers and executors look for what they were woken for, microseconds; 0 = they sleep at once. */
  readonly spinUs: number;
}

export interface TopologyExtras {
  readonly executorModule?: string;
}

/** @throws InferdError for settings that this build cannot serve. */
export function topologyOf(config: Config, model: ModelFolder, extras: TopologyExtras = {}): Topology {
  const groups = engineOptions(config, model, extras.executorModule === undefined);
  const scheduler = schedulerOptions(config, model, groups[0]?.[0]?.backend ?? 'cpu');
  const tokenizers = Array.from({ length: config.inference.num_tokenizer_workers }, (_, index) => tokenizerStart(config, model, index));
  return {
    restarts: { max: 3, windowMs: 60_000 },
    tokenizers,
    groups,
    kv: {
      utilization: config.cache.gpu_memory_utilization,
      numBlocksOverride: config.cache.num_gpu_blocks_override,
      preemptionMode: config.scheduler.preemption_mode,
      swapBytes: config.cache.swap_space_bytes,
      swapFraction: config.cache.swap_space_fraction,
    },
    scheduler,
    ...rings(model, scheduler),
    executorModule: extras.executorModule ?? null,
    closeLimitMs: config.scheduler.hang_timeout_s * 1000,
    spinUs: config.scheduler.spin_us,
  };
}

/**
 * A template is code that came with the model: above what the longest prompts need (100 tools of 300 parameters: up to 500 ms in a fresh
 * thread), far below what harms. Processor time.
 */
const TEMPLATE_MS = 1000;
const TEMPLATE_BYTES = 2 ** 20;

function tokenizerStart(config: Config, model: ModelFolder, index: number): TokenizerStart {
  const { maxModelLen, maxInputLength, maxTotalTokens } = model;
  const template = {
    maxTemplateMs: TEMPLATE_MS,
    maxTemplateBytes: TEMPLATE_BYTES,
    maxTemplateOutputBytes: 2 * config.server.max_message_bytes + TEMPLATE_BYTES,
  };
  return {
    model,
    index,
    limits: { maxModelLen, maxInputLength, maxTotalTokens, ...template },
    parsers: { toolCalls: config.inference.tool_call_parser, reasoning: config.inference.reasoning_parser },
    grammarLimits: grammarLimits(config.structured_output),
    numGroups: config.parallel.data_parallel_size,
    blockSize: config.cache.block_size,
  };
}

/** Of each rank of each group. `probe`: "auto" may ask the addon for a GPU; a module in its place has none. */
function engineOptions(config: Config, model: ModelFolder, probe: boolean): EngineOptions[][] {
  const { inference, cache, scheduler } = config;
  const backend = inference.device === 'auto' ? (probe ? bestBackend(config) : 'cpu') : inference.device;
  const { tensor_parallel_size: ranks, data_parallel_size: groups } = config.parallel;
  const devices = deviceKinds[backend].onHost ? new Array<number>(ranks * groups).fill(0) : inference.device_ids;
  if (devices.length !== ranks * groups) throw new InferdError('unsupported', `${oneDeviceARank(devices, config.parallel)}.`);
  // Ranks of one model: those of a group, or with data-parallel attention the groups.
  const dpAttention = config.parallel.enable_dp_attention;
  const threads = dpAttention ? inference.threads : threadsOfGroup(inference.threads, groups);
  const ofRank = (deviceId: number, rank: number, rankDevices: readonly number[]): EngineOptions => ({
    modelPath: model.path,
    ...(isGguf(model.path) ? { modelConfig: JSON.stringify(model.config) } : {}),
    backend,
    deviceId,
    threads,
    weightDtype: inference.dtype,
    quantization: inference.quantization,
    kvDtype: kvDtype(config, model, backend),
    blockSize: cache.block_size,
    maxSlots: scheduler.max_num_sequences,
    maxBatchTokens: scheduler.max_num_batched_tokens,
    maxModelLen: model.maxModelLen,
    slidingWindow: cache.sliding_window ?? 0,
    loadDummy: inference.load_dummy,
    rank,
    worldSize: dpAttention ? groups : ranks,
    expertParallel: config.parallel.expert_parallel,
    dpAttention,
    commTimeoutMs: config.parallel.comm_timeout_ms,
    ...(deviceKinds[backend].onHost || ranks === 1 ? {} : { allReduce: config.parallel.all_reduce, rankDevices }),
    isa: 'auto',
    ...recordedSteps(config),
    ...drafting(config, model, backend),
    ...(config.lora.enabled ? { adapters: { places: config.lora.max_loras, maxRank: config.lora.max_rank } } : {}),
  });
  return Array.from({ length: groups }, (_, group) => {
    const own = devices.slice(group * ranks, (group + 1) * ranks);
    return own.map((id, rank) => ofRank(id, dpAttention ? group : rank, own));
  });
}

/** Groups divide the threads of the CPU backend, as ranks do; each has one at least. */
function threadsOfGroup(threads: number, groups: number): number {
  if (groups === 1) return threads;
  return Math.max(1, Math.floor((threads === 0 ? loadAddon().systemInfo().physicalCores : threads) / groups));
}

/** The steps that a GPU records. */
export const recordedSteps = ({ inference }: Config): Pick<EngineOptions, 'graphSizes' | 'prefillGraphSizes'> =>
  inference.enforce_eager
    ? { graphSizes: [] }
    : { graphSizes: inference.cuda_graph_sizes, prefillGraphSizes: inference.cuda_graph_prefill_sizes };

/** CUDA when its backend was built, loads and finds a GPU, and nothing is asked for that only the CPU backend has. */
export function bestBackend(config: Config): BackendName {
  return !wantsCpu(config) && loadAddon().systemInfo().cuda.problem === '' ? 'cuda' : 'cpu';
}

/** Something is asked for that only the CPU backend has. */
export function wantsCpu({ inference, cache, parallel }: Config): boolean {
  return inference.dtype === 'f32' || cache.cache_dtype === 'f32' || parallel.enable_dp_attention;
}

/** Below this, exact float32 keys and values cost little and make answers independent of the batch to the last bit. */
const SMALL_MODEL_PARAMETERS = 64e6;

function kvDtype(config: Config, model: ModelFolder, backend: BackendName): EngineOptions['kvDtype'] {
  const asked = config.cache.cache_dtype;
  if (asked !== 'auto' || backend !== 'cpu') return asked;
  // On a GPU only where fp8 is asked for: its products with scales were never run on one, and it refuses scales of single heads.
  if (asksForFloat8Cache(model.config)) return 'fp8';
  const checkpoint = model.config['torch_dtype'] ?? model.config['dtype'];
  const parameters = model.sizeBytes / (checkpoint === 'float32' ? 4 : 2);
  return parameters > 0 && parameters < SMALL_MODEL_PARAMETERS ? 'f32' : 'bf16';
}

function drafting({ speculative: s }: Config, model: ModelFolder, backend: BackendName): Pick<EngineOptions, 'drafts'> {
  if (s.method === 'none') return {};
  return {
    drafts: {
      ...{ maxTokens: s.num_tokens, ngramMin: s.ngram_min, ngramMax: s.ngram_max, method: s.method },
      // adaptiveLength() gives none to a larger batch.
      maxRows: Math.max(1, Math.min(s.max_batch, Math.floor(deviceKinds[backend].draftFreeRows / 2))),
      ...(s.forced_acceptance === null ? {} : { forcedRate: s.forced_acceptance }),
      ...(model.drafter === undefined ? {} : { modelPath: model.drafter.path }),
    },
  };
}

/** A layer of a model, as a share of the whole: what a head costs. */
const HEAD_COST = 0.05;

/** What the network that drafts costs for a token, as a share of a step of the model. */
function drafterCost({ speculative: s }: Config, model: ModelFolder): number {
  if (s.method === 'mtp') return HEAD_COST;
  return model.drafter === undefined ? 0 : Math.min(0.5, model.drafter.sizeBytes / Math.max(1, model.sizeBytes));
}

function draftOptions(config: Config, model: ModelFolder, backend: BackendName): SchedulerOptions['drafts'] {
  const { speculative: s } = config;
  if (s.method === 'none') return null;
  return {
    maxTokens: s.num_tokens,
    maxBatch: s.max_batch,
    rowCost: deviceKinds[backend].draftRowCost + drafterCost(config, model),
    freeRows: deviceKinds[backend].draftFreeRows,
    inBlocks: s.method !== 'ngram',
  };
}

function schedulerOptions(config: Config, model: ModelFolder, backend: BackendName): Topology['scheduler'] {
  const { cache, scheduler } = config;
  return {
    blockSize: cache.block_size,
    maxSlots: scheduler.max_num_sequences,
    maxBatchTokens: scheduler.max_num_batched_tokens,
    mixedStepTokens: scheduler.mixed_step_tokens || deviceKinds[backend].mixedStepTokens,
    maxModelLen: model.maxModelLen,
    enableChunkedPrefill: scheduler.enable_chunked_prefill,
    enablePrefixCaching: cache.enable_prefix_caching,
    delayFactor: scheduler.delay_factor,
    policy: scheduler.policy,
    preemptionMode: scheduler.preemption_mode,
    drafts: draftOptions(config, model, backend),
    adapterPlaces: config.lora.enabled ? config.lora.max_loras : 0,
    maxQueue: scheduler.max_queue,
    queueTimeoutMs: scheduler.queue_timeout_s * 1000,
    keptTimelines: scheduler.kept_timelines,
    eosTokenIds: model.eosTokenIds,
    maxStepsInFlight: 2,
  };
}

/** Logit bias, masked ids and the like of one new slot, words; generous, because it bounds a buffer that grows only when needed. */
const SLOT_LIST_WORDS = 16_384;
const TOP_ENTRIES = 20;

/**
 * Rings hold a few ordinary steps; a step with very long new prompts crosses in fragments. The entry limits are the largest bodies that
 * the step layout allows under this configuration.
 */
function rings(model: ModelFolder, scheduler: Topology['scheduler']): { plans: RingSpec; results: RingSpec } {
  const { maxSlots: slots, maxBatchTokens: batch, drafts } = scheduler;
  const planWords = planWordsLimit({ ...scheduler, numBlocks: Number.MAX_SAFE_INTEGER }, SLOT_LIST_WORDS);
  const sampled = slots * (1 + (drafts?.maxTokens ?? 0));
  const top = TOP_ENTRIES * RESULT_TOP.words;
  const perSlot = RESULT_POOLED.values + model.hiddenSize;
  const resultWords = RESULT.headerWords + sampled * (RESULT_SAMPLE.words + top) + slots * perSlot + batch * (RESULT_PROMPT.words + top);
  const usualPlanBytes = 4 * (batch + slots * 128);
  const usualResultBytes = 4 * sampled * (RESULT_SAMPLE.words + top);
  return {
    plans: { capacityBytes: clampRing(4 * usualPlanBytes), maxEntryBytes: planWords * 4 },
    results: { capacityBytes: clampRing(4 * usualResultBytes), maxEntryBytes: resultWords * 4 },
  };
}

const clampRing = (bytes: number): number => Math.min(Math.max(bytes, 2 ** 18), 2 ** 23);
