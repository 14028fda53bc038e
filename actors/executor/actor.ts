/**
 * The executor actor: one rank of the engine. A parked loop on its own thread that keeps the native engine fed with up to two steps.
 *
 *   plan ready and < 2 in flight  -> submit, at once
 *   1 in flight, no plan yet      -> sleep on the doorbell for most of the expected step, so that the next plan is submitted before the
 *                                    running step ends; then wait in native code, in short slices
 *   2 in flight                   -> wait in native code
 *   a plan that counts on the     -> wait in native code; only ranks other than 0 meet it, as the scheduler reads the results of rank 0
 *   result of a step in flight
 *   a step is about to end        -> with `spinUs`: wake the scheduler (rank 0), and look for the end without sleeping
 *   a step is done                -> write its result (rank 0), ring the scheduler
 *   another executor is ahead     -> with no plan at hand, submit an empty step, whose result is dropped (lockstep.ts)
 *
 * A failed step or native error is reported as a fault and ends the actor: slots, blocks and step order are shared state of the group.
 * At its end it waits for the steps in flight, unless it is given up; an engine whose step does not end is left behind, and that is told.
 */
import { type EngineOptions, loadAddon, type NativeEngine, type NativeError } from '../../native/index.js';
import type { Fault, ToActor } from '../messages/control.js';
import { type ErrorKind, engineFault, InferdError } from '../messages/errors.js';
import { SPAN } from '../messages/profile.js';
import { emptyPlan, PLAN, RESULT } from '../messages/step.js';
import { type Control, MAX_PARK_MS, runParked } from '../runtime/actor.js';
import { nowMs } from '../runtime/clock.js';
import { type Doorbell, listen, park, ring } from '../runtime/doorbell.js';
import { errorFields } from '../runtime/log.js';
import { type RingMemory, RingReader, RingWriter } from '../runtime/ring.js';
import type { SpanRecorder } from '../runtime/spans.js';
import { AdapterLoads } from './adapter-loads.js';
import { Lockstep, type LockstepMemory } from './lockstep.js';
import { ExecutorRecorder } from './recorder.js';
import { rankInGroup } from './share.js';
import { type KvSettings, startNativeEngine } from './startup.js';
import { StepClock } from './step-clock.js';

export interface ExecutorStart {
  readonly options: EngineOptions;
  readonly kv: KvSettings;
  /** URL of a module that exports `createEngine(options)` in place of the addon; null = the addon. */
  readonly engineModule: string | null;
  readonly bell: Doorbell;
  readonly schedulerBell: Doorbell;
  readonly plans: RingMemory;
  /** Written by rank 0 only. */
  readonly results: RingMemory;
  /** Of groups that share experts; null: each step is its own. */
  readonly lockstep: LockstepMemory | null;
  /** How long the steps in flight may take at the end; longer, and the engine is given up. */
  readonly closeLimitMs: number;
  /** How long it looks for a plan or for the end of a step before it sleeps, microseconds; 0 = it does not look. */
  readonly spinUs: number;
}

/** The part of a step that is slept away before the native wait. */
const SLEEP_SHARE = 0.8;
/** Native waits are cut into slices, so that stop requests (and, with one step in flight, late plans) are seen. */
const FULL_SLICE_MS = 50;
const OPEN_SLICE_MS = 5;
/** Not worth sleeping for. */
const MIN_SLEEP_MS = 0.1;
/** What is left of a wait below a millisecond, in which native waits are given, is slept in pieces: the step may end before it was due. */
const NAP_MS = 0.1;
const MAX_IN_FLIGHT = 2;
/** In place of the tokens of a step in flight: it was submitted only to stay in step. */
const EMPTY = -1;
/** Sleep of a loop without steps while an adapter is read: the thread that reads it cannot ring. */
const ADAPTER_PARK_MS = 10;

/** Runs until told to stop. @throws after it has reported a fault. */
export async function runExecutor(start: ExecutorStart, control: Control): Promise<void> {
  const create = await engineFactory(start.engineModule);
  let engine: NativeEngine | null = null;
  let loop: ExecutorLoop | null = null;
  try {
    const started = startNativeEngine(create, start.options, start.kv, control);
    if (started === null) return;
    engine = started.engine;
    const running = new ExecutorLoop(start, control, engine);
    loop = running;
    control.ready(started.capacity);
    runParked(
      start.bell,
      control,
      () => running.turn(),
      () => running.spinUs(),
    );
  } catch (error) {
    // Of several ranks, one that is told to stop may find the others gone.
    if (start.options.worldSize > 1) control.poll();
    if (control.stopping) return;
    const fault = faultOf(error);
    const fields = { ...errorFields(error), ...loop?.describe() };
    // A start that failed for a reason which was foreseen: its sentence says it all to whoever asked for the start.
    if (loop === null && fault.failure.kind !== 'engine_failure') control.log.debug(fields, 'the executor did not start');
    else control.log.error(fields, 'the executor failed');
    control.fault(fault);
    throw error;
  } finally {
    if (engine?.close(control.givenUp ? 0 : start.closeLimitMs) === false) control.fault(stillRuns);
  }
}

const stillRuns: Fault = {
  failure: { kind: 'engine_failure', message: 'A step does not end', data: { retriable: false } },
  fatal: false,
  leftBehind: true,
};

class ExecutorLoop {
  readonly #start: ExecutorStart;
  readonly #control: Control;
  readonly #engine: NativeEngine;
  readonly #plans: RingReader;
  readonly #results: RingWriter;
  readonly #result: Uint8Array;
  readonly #clock = new StepClock();
  readonly #recorder: ExecutorRecorder;
  readonly #adapters: AdapterLoads;
  readonly #spans: SpanRecorder;
  /** Header of the last plan submitted, for the log of a fault. */
  readonly #lastPlan = new Uint8Array(PLAN.headerWords * 4);
  readonly #lastHeader = new Int32Array(this.#lastPlan.buffer);
  /** Null where each step is its own. */
  readonly #lockstep: Lockstep | null;
  readonly #empty = emptyPlan();
  /** Rank of the group: 0 alone reads results out. */
  readonly #rank: number;
  /** Tokens of the steps in flight, or EMPTY, oldest first; at most MAX_IN_FLIGHT. */
  readonly #inFlight: number[] = [];
  /** A plan that waits for the end of a step that it counts on; null: the next one is in the ring. */
  #held: Uint8Array | null = null;
  /** When the oldest step in flight began to run, as far as can be known here. */
  #beganMs = 0;
  /** The scheduler was woken for the end of the oldest step in flight. */
  #roused = false;

  constructor(start: ExecutorStart, control: Control, engine: NativeEngine) {
    this.#start = start;
    this.#control = control;
    this.#engine = engine;
    this.#rank = rankInGroup(start.options);
    this.#lockstep = start.lockstep === null ? null : new Lockstep(start.lockstep, start.options.rank);
    this.#plans = new RingReader(start.plans, this.#rank, start.schedulerBell);
    this.#results = new RingWriter(start.results, [start.schedulerBell]);
    this.#result = new Uint8Array(start.results.maxEntryBytes);
    this.#recorder = new ExecutorRecorder(engine, control, (error) => faultOf(error).failure);
    this.#adapters = new AdapterLoads(engine, control, (error) => faultOf(error).failure);
    this.#spans = this.#recorder.spans;
  }

  /** What was going on, as log fields: numbers, and what the engine said of a failed step, which holds no tokens. (headerWords lies behind the header and is left out.) */
  describe(): Record<string, unknown> {
    const plan = Object.fromEntries(Object.entries(PLAN).map(([name, word]) => [name, this.#lastHeader[word]]));
    return { lastPlan: plan, inFlight: this.#inFlight.length, said: this.#engine.lastError?.() };
  }

  /** Returns how long the loop may sleep. */
  turn(): number {
    const heard = listen(this.#start.bell);
    const room = this.#results.resume();
    if (room) this.#submitPlans();
    this.#control.poll((message) => this.#onControl(message));
    const idleMs = this.#adapters.answer() ? ADAPTER_PARK_MS : MAX_PARK_MS;
    // Without room, the scheduler rings when it has read some results.
    if (!room || this.#inFlight.length === 0) return idleMs;
    if (this.#collect(0)) return 0;
    if (this.#inFlight.length < MAX_IN_FLIGHT && this.#held === null) {
      const sleepMs = this.#beganMs + SLEEP_SHARE * this.#clock.predictMs(Math.max(this.#inFlight[0] ?? 0, 0)) - nowMs();
      if (sleepMs > MIN_SLEEP_MS && this.#sleep(heard, Math.min(sleepMs, MAX_PARK_MS))) return 0;
      this.#await(heard, OPEN_SLICE_MS);
    } else this.#await(heard, FULL_SLICE_MS);
    return 0;
  }

  /** After a turn that a ring began: without a step in flight, it was rung for a plan that is being made. */
  spinUs(): number {
    return this.#inFlight.length === 0 ? this.#start.spinUs : 0;
  }

  /** Waits for the oldest step for a slice at most; less near its end, which is looked for from half of `spinUs` before it is due. */
  #await(heard: number, sliceMs: number): void {
    const spinMs = this.#start.spinUs / 1000;
    const expectedMs = spinMs === 0 ? 0 : this.#clock.predictMs(Math.max(this.#inFlight[0] ?? 0, 0));
    const leftMs = this.#beganMs + expectedMs - spinMs / 2 - nowMs();
    if (expectedMs === 0 || leftMs < -spinMs) this.#collect(sliceMs);
    else if (leftMs >= 1) this.#collect(Math.min(sliceMs, Math.floor(leftMs)));
    else if (leftMs > 0) this.#sleep(heard, Math.min(leftMs, NAP_MS));
    else {
      if (!this.#roused && this.#rank === 0) ring(this.#start.schedulerBell);
      this.#roused = true;
      this.#look(heard, leftMs + spinMs);
    }
  }

  /** True when the doorbell rang before `timeoutMs`. */
  #sleep(heard: number, timeoutMs: number): boolean {
    const began = this.#spans.begin();
    const rang = park(this.#start.bell, heard, timeoutMs);
    this.#spans.end(SPAN.sleep, began, this.#oldestStep);
    return rang;
  }

  #onControl(message: ToActor): void {
    if (message.k === 'record' || message.k === 'handover') this.#recorder.onCall(message);
    if (message.k === 'load_adapter' || message.k === 'unload_adapter') this.#adapters.onCall(message);
  }

  get #lastStep(): number {
    return this.#lastHeader[PLAN.step] ?? 0;
  }

  /** Of the plans in flight, which are numbered without gaps, modulo 2^32. */
  get #oldestStep(): number {
    return (this.#lastStep - this.#plansInFlight + 1) | 0;
  }

  /** Steps in flight that a scheduler planned. */
  get #plansInFlight(): number {
    let plans = 0;
    for (const tokens of this.#inFlight) if (tokens !== EMPTY) plans++;
    return plans;
  }

  #submitPlans(): void {
    while (this.#inFlight.length < MAX_IN_FLIGHT) {
      const reading = this.#spans.begin();
      const plan = this.#held ?? this.#plans.read();
      if (plan === null) {
        if (this.#lockstep?.behind !== true) return;
        this.#engine.submit(this.#empty);
        this.#submitted(EMPTY);
        continue;
      }
      this.#held = this.#plansInFlight > wordOf(plan, PLAN.unread) ? plan : null;
      if (this.#held !== null) return;
      this.#lastPlan.set(plan.subarray(0, this.#lastPlan.byteLength));
      this.#spans.end(SPAN.readPlan, reading, this.#lastStep, plan.byteLength);
      const submitting = this.#spans.begin();
      this.#engine.submit(plan);
      this.#spans.end(SPAN.submit, submitting, this.#lastStep, this.#lastHeader[PLAN.numRows], this.#lastHeader[PLAN.numTokens]);
      this.#submitted(wordOf(plan, PLAN.numTokens));
    }
  }

  #submitted(tokens: number): void {
    if (this.#inFlight.push(tokens) === 1) this.#beganMs = nowMs();
    this.#lockstep?.add();
  }

  /** Waits at most `timeoutMs` for the oldest step. True when it was done. @throws StepFailed */
  #collect(timeoutMs: number): boolean {
    const step = this.#oldestStep;
    const waiting = this.#spans.begin();
    const bytes = this.#engine.wait(this.#result, timeoutMs);
    this.#spans.end(SPAN.wait, waiting, step, bytes === 0 ? 0 : 1);
    return this.#take(bytes, step);
  }

  /** As #collect, without sleeping, until somebody rings: there may be a plan to submit. */
  #look(heard: number, limitMs: number): boolean {
    const step = this.#oldestStep;
    const waiting = this.#spans.begin();
    const end = nowMs() + limitMs;
    let bytes = this.#engine.wait(this.#result, 0);
    while (bytes === 0 && listen(this.#start.bell) === heard && nowMs() < end) bytes = this.#engine.wait(this.#result, 0);
    this.#spans.end(SPAN.wait, waiting, step, bytes === 0 ? 0 : 1);
    return this.#take(bytes, step);
  }

  /** The result of a native wait, in bytes; 0 = the step is not done, then false. @throws StepFailed */
  #take(bytes: number, step: number): boolean {
    if (bytes === 0) return false;
    this.#roused = false;
    const now = nowMs();
    const tokens = this.#inFlight.shift() ?? 0;
    this.#clock.record(Math.max(tokens, 0), now - this.#beganMs);
    this.#beganMs = now;
    if (tokens !== EMPTY) {
      const writing = this.#spans.begin();
      if (this.#rank === 0) this.#results.write(this.#result.subarray(0, bytes));
      this.#spans.end(SPAN.writeResult, writing, step, bytes);
    }
    const code = new Int32Array(this.#result.buffer, 0, RESULT.headerWords)[RESULT.errorCode] ?? 0;
    if (code !== engineFault.none) throw new StepFailed(code);
    return true;
  }
}

/** Of the header of a plan. */
function wordOf(plan: Uint8Array, word: number): number {
  return new DataView(plan.buffer, plan.byteOffset).getInt32(word * 4, true);
}

/** A step came back with an error code. */
class StepFailed extends Error {
  readonly fatal: boolean;
  readonly outOfMemory: boolean;
  constructor(code: number) {
    super(`a step failed with engine fault code ${code}`);
    this.fatal = code === engineFault.fatal;
    this.outOfMemory = code === engineFault.outOfMemory;
  }
}

/** Codes of a NativeError that say more than that the engine failed. */
const nativeKinds: ReadonlyMap<unknown, ErrorKind> = new Map<NativeError['code'], ErrorKind>([
  ['bad_model', 'bad_model'],
  ['io', 'missing_file'],
  ['unsupported', 'unsupported'],
  ['out_of_memory', 'out_of_memory'],
]);

function faultOf(error: unknown): Fault {
  if (error instanceof InferdError) return { failure: error.failure, fatal: false };
  if (error instanceof StepFailed) {
    return { failure: { kind: error.outOfMemory ? 'out_of_memory' : 'engine_failure', data: { retriable: true } }, fatal: error.fatal };
  }
  const { code, fatal, message } = (error instanceof Error ? error : new Error(String(error))) as Error & {
    code?: unknown;
    fatal?: unknown;
  };
  const kind = nativeKinds.get(code) ?? 'engine_failure';
  // A group of ranks is closed by the first of them that goes.
  return { failure: { kind, message }, fatal: fatal === true, ...(code === 'closed' ? { because: 'another rank' } : {}) };
}

async function engineFactory(module: string | null): Promise<(options: EngineOptions) => NativeEngine> {
  if (module === null) return (options) => loadAddon().createEngine(options);
  const loaded = (await import(module)) as { createEngine?: (options: EngineOptions) => NativeEngine };
  if (typeof loaded.createEngine !== 'function') throw new Error(`${module} does not export createEngine`);
  return loaded.createEngine;
}
