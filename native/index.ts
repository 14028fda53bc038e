/**
 * The typed face of the native addon: everything TypeScript knows of it is in this file. Used by the executor actor and by tests.
 *
 * One NativeEngine belongs to the thread that made it. `submit` returns at once; `wait` blocks its thread (in native code) until the
 * oldest submitted step is done. At most two steps may be in flight.
 */

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, isAbsolute, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The backends of native/engine/backends.cpp. */
export type BackendName = 'cpu' | 'cuda';

/** What plain weights can be made into while they are loaded; native/models/config/quantization.cpp. */
export const quantizations = ['none', 'int8', 'int4', 'fp8'] as const;

export interface EngineOptions {
  /** Folder with config.json and *.safetensors, or a GGUF file. */
  readonly modelPath: string;
  /** Text of a config.json in place of the folder's; what a GGUF file needs. */
  readonly modelConfig?: string;
  readonly backend: BackendName;
  readonly deviceId: number;
  /** CPU compute threads of all ranks together, of which each has one at least; 0 = physical cores. */
  readonly threads: number;
  readonly weightDtype: 'auto' | 'f32' | 'f16' | 'bf16';
  readonly quantization: (typeof quantizations)[number];
  /** auto = the type of the activations: f32 on the CPU, the model's 16-bit type on a GPU, which takes only fp8 and int8 besides. */
  readonly kvDtype: 'auto' | 'f32' | 'f16' | 'bf16' | 'fp8' | 'int8';
  readonly blockSize: number;
  /** Sequences in flight: size of the slot tables. */
  readonly maxSlots: number;
  /** Tokens of one step. */
  readonly maxBatchTokens: number;
  readonly maxModelLen: number;
  /** 0 = as config.json says. */
  readonly slidingWindow: number;
  readonly loadDummy: boolean;
  /** Of `worldSize` engines that compute the model together; each runs all plans, and all give the same results. */
  readonly rank: number;
  readonly worldSize: number;
  /** Of several ranks: no other one is there, and sums are what this one brings. What it answers means nothing: for measuring a share. */
  readonly alone?: boolean;
  /** Of several ranks: what newRankGroup gave, the same for all of them. */
  readonly group?: number;
  /** Of several ranks: each computes some of the experts of a layer whole, in place of a part of every one; not when absent. */
  readonly expertParallel?: boolean;
  /**
   * Of several ranks: each attends to sequences of its own, with plans and results of its own, and has all of the model but the experts,
   * which they share whole. Each submits as many steps as the others, empty ones where it has nothing to do. Not when absent.
   */
  readonly dpAttention?: boolean;
  /** Of several ranks: how long one waits for the others before all of them fail. */
  readonly commTimeoutMs?: number;
  /** Of several ranks on GPUs, who carries their sums: kernels over memory of each other or NCCL; `auto`, as when absent, where they can. */
  readonly allReduce?: 'auto' | 'own' | 'nccl';
  /** Of several ranks on GPUs: `deviceId` of each, for `auto`, which without them takes it that they reach each other. */
  readonly rankDevices?: readonly number[];
  /** For tests: the collective, counted from 0, in which this rank fails, or sleeps when sleepMs > 0. */
  readonly commFault?: { readonly at: number; readonly sleepMs: number };
  /** Forces a kernel set of the CPU backend: "auto", "reference", "avx2", "avxvnni", "avx512", "avx512vnni", "neon", "neondot", "neoni8mm". */
  readonly isa: string;
  /** Batch sizes at which a GPU records decode steps as graphs; absent or empty = never. */
  readonly graphSizes?: readonly number[];
  /** The same of the tokens of other steps: prompts, and decode rows beside them. Only what a GPU can record so is. */
  readonly prefillGraphSizes?: readonly number[];
  /** Absent: plans ask for no drafts. */
  readonly drafts?: {
    /** Of a sequence and step, at most 31. */
    readonly maxTokens: number;
    /** Of the last tokens so many are looked for in the history, the most first; 1 to 64. */
    readonly ngramMin: number;
    readonly ngramMax: number;
    /** What drafts: those n-grams, which is what it is when absent, or a network with keys and values of its own in the same blocks. */
    readonly method?: 'ngram' | DraftNetwork;
    /**
     * A network passes over steps of more rows that ask for no drafts, and so costs nothing where nobody drafts; what it passed over is worse
     * drafted later. It sees all steps when absent.
     */
    readonly maxRows?: number;
    /** 0 to 1, for benchmarks: behind a draft that is accepted so many of the next ones are, right or not; answers then mean nothing. */
    readonly forcedRate?: number;
    /** Of `draft` a folder with a model of the same tokenizer, of `eagle3` one with a head; `mtp` is a layer of the model itself. */
    readonly modelPath?: string;
  };
  /** Absent: no room for adapters, and nothing that it would cost. */
  readonly adapters?: {
    /** Adapters that one step can use, at most 256. */
    readonly places: number;
    /** Of a module, at most 512. */
    readonly maxRank: number;
  };
}

/** A small model, a head of EAGLE's on the model's hidden states, or the model's layer for multi-token prediction. */
export type DraftNetwork = 'draft' | 'eagle3' | 'mtp';

/** What a network drafted for one sequence. */
export interface MadeDrafts {
  readonly slot: number;
  readonly ids: Int32Array;
  /** Of the last of them; empty for a sequence that had fewer than others. */
  readonly logits: Float32Array;
}

/** An adapter in host memory. */
export interface AdapterInfo {
  /** The largest of its modules. */
  readonly rank: number;
  /** Weights of the checkpoint that it adds to. */
  readonly modules: number;
  readonly bytes: number;
  /** What its config says that it was trained for, or "". */
  readonly base: string;
}

export interface NativeModelInfo {
  readonly architecture: string;
  readonly vocabSize: number;
  readonly numLayers: number;
  readonly hiddenSize: number;
  readonly maxPositions: number;
  /** Of the whole model; the rest, in bytes, is of this rank. */
  readonly parameters: number;
  readonly weightBytes: number;
  /** Of these an embedding that steps only look rows up in; 0 where the head is its weight too. */
  readonly tableBytes: number;
  readonly dtype: string;
  readonly kvDtype: string;
  /** Layers whose keys and values are divided by scales of the checkpoint before they become fp8. */
  readonly kvScaledLayers: number;
  /** Bytes of one KV block over all layers, keys and values. */
  readonly blockBytes: number;
  /** Bytes of step memory planned for maxBatchTokens. */
  readonly stepBytes: number;
  /** Free memory of the device now, bytes. */
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** Free memory of the machine now, bytes; on the CPU the same as freeBytes. */
  readonly hostFreeBytes: number;
  /** For example "cpu avx512 x2". */
  readonly backend: string;
}

export interface LoadProgress {
  readonly doneBytes: number;
  readonly totalBytes: number;
  readonly done: boolean;
}

/** What the last step made the experts of one block do. */
export interface ExpertWork {
  /** Of each expert held here. */
  readonly tokens: Int32Array;
  /** Experts of a token. */
  readonly chosen: number;
  /** Of the weights of one expert, as they lie here. */
  readonly bytes: number;
  /** Of one expert, as all ranks hold it. */
  readonly parameters: number;
}

export interface NativeEngine {
  /** Loads about `maxBytes` more of the weights, so that the caller can report progress and stop in between. */
  load(maxBytes: number): LoadProgress;
  /** After loading. */
  info(): NativeModelInfo;
  /**
   * Of several ranks, after loading, on the threads of all of them: waits for the others and returns the least of each number that a rank
   * gave. @throws NativeError when the ranks have parted
   */
  agree?(values: readonly number[]): number[];
  /**
   * Once, after loading: blocks of the device, and of the host for swapping (none when absent). @throws NativeError with the arithmetic
   * when they do not fit.
   */
  allocateKv(numBlocks: number, numSwapBlocks?: number): void;
  /**
   * Reads an adapter in PEFT's layout into host memory, under a number that plans place it by. Test doubles may lack both.
   * @throws NativeError naming what is broken, does not fit or is not supported
   */
  loadAdapter?(id: number, folder: string): AdapterInfo;
  /** As loadAdapter, on a thread of its own while steps go on. One after the other; unloadAdapter calls it off. */
  beginAdapter?(id: number, folder: string): void;
  /** Null while an adapter that was begun is read; then, once, what it is. @throws as loadAdapter, and its number is free again */
  adapterRead?(id: number): AdapterInfo | null;
  /** Plans place it no more; sequences that use it where it is placed may go on. */
  unloadAdapter?(id: number): void;
  /**
   * Checks and copies the plan (layout: actors/messages/step.ts) and starts it after the ones before it. Does not keep `plan`. `others`:
   * ranks that get it at the same time, each on a thread of its own.
   */
  submit(plan: Uint8Array, others?: readonly NativeEngine[]): void;
  /** Blocks until the oldest step is done and writes its result body. Returns its bytes, or 0 after `timeoutMs`. */
  wait(result: Uint8Array, timeoutMs: number): number;
  /** What the last step that answered with an error code said, or "". Never holds tokens. Test doubles may lack it. */
  lastError?(): string;
  /** Steps submitted and not yet returned by wait. */
  pending(): number;
  /** Of the last step and each block with experts; while no step runs. Test doubles may lack it. @throws NativeError when one does */
  expertWork?(): ExpertWork[];
  /** What a network drafted in the last step, for tests; while no step runs. @throws NativeError when one does, and without a network */
  madeDrafts?(): MadeDrafts[];
  /**
   * Records what the device does from here on, in room for `maxEvents`; waits for running steps. Test doubles may lack all three.
   * @throws NativeError when a recording runs already
   */
  profileStart?(maxEvents: number): void;
  /** Ends the recording, after waiting for running steps. @throws NativeError when there is none */
  profileStop?(): DeviceTrace;
  /** The clock of DeviceTrace now, microseconds. */
  profileClock?(): number;
  /**
   * Waits for running steps and frees everything; later calls throw. False when a step still ran after `limitMs` (ten minutes when absent,
   * and at most): then the engine is given up, and its memory and threads stay until the process ends.
   */
  close(limitMs?: number): boolean;
}

/** Kinds of events of a DeviceTrace; mirror of TraceKind in native/core/trace.h. */
export const TRACE_KIND = { step: 0, op: 1, kernel: 2, copy: 3 } as const;

/** What a device did: columns of events in order of start, outer ones before those inside them. */
export interface DeviceTrace {
  /** How it was seen: the ops of the CPU backend; kernels and copies, through CUPTI; CUDA events around each step, and no more. */
  readonly source: 'ops' | 'cupti' | 'events';
  /** One sentence why not better, or on how good the times are; or "". */
  readonly note: string;
  /** Events that found no room or had no times. */
  readonly dropped: number;
  readonly names: readonly string[];
  /** A number of TRACE_KIND. */
  readonly kind: Uint8Array<ArrayBuffer>;
  /** Index into `names`. */
  readonly name: Int32Array<ArrayBuffer>;
  /** Stream of the device; 0 for steps and ops. */
  readonly lane: Int32Array<ArrayBuffer>;
  /** Number of a step, bytes of a copy. */
  readonly value: Float64Array<ArrayBuffer>;
  /** Of profileClock. */
  readonly startUs: Float64Array<ArrayBuffer>;
  readonly durationUs: Float64Array<ArrayBuffer>;
}

/** Thrown by every call of the addon; `fatal` means the process cannot go on (sticky device error). */
export interface NativeError extends Error {
  readonly code: 'bad_model' | 'bad_plan' | 'unsupported' | 'out_of_memory' | 'io' | 'device' | 'closed' | 'usage';
  readonly fatal: boolean;
}

export interface SystemInfo {
  readonly cpu: string;
  readonly physicalCores: number;
  /** Instruction sets found, for example ["avx2", "avx512", "avx512_bf16"]. */
  readonly features: readonly string[];
  /** The kernel set "auto" takes. */
  readonly isa: string;
  readonly totalMemoryBytes: number;
  readonly freeMemoryBytes: number;
  /** Kernel sets this build holds that this CPU can run. */
  readonly usableIsas: readonly string[];
  /** Quantized formats of checkpoints, and what the CPU does with them. */
  readonly weightFormats: readonly WeightFormatInfo[];
  readonly cuda: CudaInfo;
}

export interface WeightFormatInfo {
  /** For example "Q4_K" or "AWQ". */
  readonly name: string;
  /** Multiplied in its own codes; else widened as it is loaded. */
  readonly native: boolean;
}

export interface CudaInfo {
  /** One sentence when no CUDA device can be used, else "". */
  readonly problem: string;
  /** For example 13.0; 0 when there is none. */
  readonly driverVersion: number;
  readonly runtimeVersion: number;
  /** The cuBLAS library in use, for example "13.1.1"; "" when none was found. */
  readonly cublas: string;
  readonly devices: readonly CudaDevice[];
}

/** The library that carries sums between GPUs which do not reach each other's memory. */
export interface NcclInfo {
  /** One sentence when it cannot be used, else "". */
  readonly problem: string;
  /** For example "2.28.3"; "" when it cannot be used. */
  readonly version: string;
}

/** How a GPU reaches the memory of another one: over NVLink, otherwise (PCIe), or not at all. */
export type CudaLink = 'nvlink' | 'peer' | 'none';

export interface CudaDevice {
  readonly name: string;
  readonly computeCapability: string;
  readonly totalBytes: number;
  /** To each device by its index, "none" to itself. */
  readonly links: readonly CudaLink[];
}

/** Bounds of one compileGrammar. */
export interface GrammarLimits {
  readonly maxTextBytes: number;
  readonly maxStates: number;
  readonly maxMemoryBytes: number;
  readonly maxDepth: number;
  readonly deadlineMs: number;
  /** Whether the text may use %scope and %distinct, which only generated grammars do. */
  readonly extensions: boolean;
}

/** One answer under a grammar; for tests and benchmarks, as the engine has its own. */
export interface GrammarMatcher {
  /** False when the token is not allowed: nothing has changed. @throws NativeError when the text has too many readings. */
  accept(token: number): boolean;
  /** What `accept` would answer: a copy of this matcher takes the token. @throws as `accept` */
  wouldAccept(token: number): boolean;
  /** Bit i % 32 of word i / 32 = token i is allowed. @throws as `accept` */
  mask(): Uint32Array<ArrayBuffer>;
  /** The text so far is a whole match. */
  complete(): boolean;
  /** The only token that is allowed, or -1. @throws as `accept` */
  onlyToken(): number;
  /** Takes the tokens from the start of the text, with a mask before each, beside this matcher: microseconds of each pair. */
  replay(tokens: Int32Array): Float64Array<ArrayBuffer>;
}

export interface Addon {
  createEngine(options: EngineOptions): NativeEngine;
  systemInfo(): SystemInfo;
  /** Looks for NCCL, which stays loaded where it is found. */
  ncclInfo(): NcclInfo;
  /** A number that no group of ranks in this process had before. */
  newRankGroup(): number;
  /** Ends a group: its ranks, wherever they wait for each other, fail with this reason. Any thread may call it, at any time. */
  endRankGroup(group: number, reason: string): void;
  /**
   * Ends the process with `code` (0 to 255) in `ms` at the latest, whatever its threads do then: nothing is freed, flushed or joined.
   * Cannot be taken back.
   */
  exitWithin(code: number, ms: number): void;
  /** Names and word offsets of the wire structs, for the layout test. */
  layout(): Readonly<Record<string, Readonly<Record<string, number>>>>;
  /**
   * Number of a vocabulary for grammars, process-wide: token i is tokenBytes[offsets[i], offsets[i + 1]), empty = never allowed; endIds end
   * an answer. The same vocabulary has the same number as long as some thread holds it: this one does from here to its end.
   * @throws NativeError
   */
  grammarVocabulary(tokenBytes: Buffer, offsets: Int32Array, endIds: Int32Array): number;
  /**
   * Compiles a GBNF text (dialect: native/grammar/README.md) on a thread of libuv's pool. Resolves to its number, process-wide, which this
   * thread holds until releaseGrammar or its end; rejects with a NativeError of one plain sentence.
   */
  compileGrammar(vocabulary: number, text: string, limits: GrammarLimits): Promise<number>;
  /** Gives one hold of this thread back; nothing happens where it has none. */
  releaseGrammar(grammar: number): void;
  /** What the process keeps; for tests and benchmarks. */
  grammarCounts(): { readonly vocabularies: number; readonly grammars: number };
  /** @throws NativeError for a grammar that nobody holds and that is forgotten. */
  createGrammarMatcher(grammar: number): GrammarMatcher;
  /** Names of the ops of the test table. */
  opNames(): readonly string[];
  /**
   * Runs one op of the op table on one backend and kernel set with the given inputs and returns its outputs; for tests and benches.
   * `inputs` and the result map tensor names to float32 or int32 arrays; the backend converts to the op's dtypes.
   */
  runOp(call: OpCall): Readonly<Record<string, Float32Array | Int32Array>>;
}

export interface OpCall {
  readonly op: string;
  readonly backend: BackendName;
  readonly isa: string;
  readonly threads: number;
  /** Integer and float attributes: sizes, dtype codes, eps ... as documented per op in native/addon/op_table/*.cpp. */
  readonly attrs: Readonly<Record<string, number | string>>;
  readonly inputs: Readonly<Record<string, Float32Array | Int32Array>>;
  /** Repeat the op this often and add a `timings_us` output. */
  readonly repeat?: number;
}

/**
 * Where the addon lies. INFERD_NATIVE_BUILD names another build of it: a folder of native/build, for example "address" for the one that
 * `node native/build.mjs --sanitize address` makes, or the absolute path of any folder.
 * @throws an Error with one plain sentence when it was not built.
 */
export function addonFile(env: NodeJS.ProcessEnv = process.env): string {
  const build = env['INFERD_NATIVE_BUILD'] ?? '';
  if (!isAbsolute(build) && !/^[a-z]*$/.test(build))
    throw new Error('INFERD_NATIVE_BUILD names a folder of native/build in small letters, or has an absolute path.');
  const file = join(isAbsolute(build) ? build : join(packageRoot(), 'native', 'build', build), 'inferd.node');
  if (!existsSync(file)) throw new Error(`The native engine is not built (${file} is not there); run "inferd build".`);
  return file;
}

/** Loads the addon. @throws as `addonFile`. Safe to call in any thread, many times. */
export function loadAddon(): Addon {
  return createRequire(import.meta.url)(addonFile()) as Addon;
}

/** Folder that holds package.json, whether this runs from dist/ or from source. */
export function packageRoot(): string {
  let dir = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(dir, 'package.json'))) {
    const up = dirname(dir);
    if (up === dir) throw new Error('package.json of inferd was not found');
    dir = up;
  }
  return dir;
}
