/**
 * The profiler: one recording at a time of the scheduler, the executors and their devices, and its files. Main thread; called by
 * profile.start and profile.stop, by `serve --profile`, and when the daemon stops.
 *
 *   idle --start--> starting --> recording --stop, max_seconds, end of the daemon--> writing --> idle
 *
 * A recording that max_seconds ended is written at once and told by the next stop. Its actors may die meanwhile: then it is lost, and
 * stop says so. Invariants: a file appears under its name whole or not at all; whatever ends a recording, the next one can start.
 */
import { accessSync, constants, createWriteStream, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { EngineState, ServedModel } from '../../actors/client-types.js';
import type { ExecutorRecording } from '../../actors/executor/recorder.js';
import type { ProfileCall } from '../../actors/messages/control.js';
import { InferdError } from '../../actors/messages/errors.js';
import type { Recording } from '../../actors/messages/profile.js';
import { monotonicClock } from '../../actors/runtime/clock.js';
import { errorFields, type Log } from '../../actors/runtime/log.js';
import type { Profiler, ProfileStarted, ProfileStopped } from '../../rpc/schemas/profile.js';
import { makeFolder } from '../make-folder.js';
import { chromeTrace } from './chrome-trace.js';
import { type RankRecording, type StepFacts, shifted, stepFacts } from './recording.js';
import { summaryOf } from './summary.js';

/** An actor that can record what it does. */
export interface Recorder {
  readonly kind: 'scheduler' | 'executor';
  /** The engine group that it is in. */
  readonly group: number;
  /** Of an executor, counted through all groups. */
  readonly rank: number;
  /** @throws InferdError when it cannot, does not answer in time, or is over */
  ask(make: (call: number) => ProfileCall, deadlineMs: number): Promise<unknown>;
}

export interface ProfilerOptions {
  /** Gets a folder for each rank: tp0, tp1, ...; where there are several groups, dp0_tp0, ... */
  readonly directory: string;
  /** A recording ends by itself after this. */
  readonly maxSeconds: number;
  /** Events that each actor and each device has room for. */
  readonly maxEvents: number;
  readonly version: string;
  readonly log: Log;
  /** The actors of the running engine: of each group one scheduler and its executors; empty while there is none. */
  recorders(): readonly Recorder[];
  state(): EngineState;
  model(): ServedModel | null;
}

/** The first recording on a GPU loads CUPTI; both wait for running steps. */
const CALL_DEADLINE_MS = 60_000;
const COMPRESSION = 5;

interface Running {
  readonly recorders: readonly Recorder[];
  readonly startedAt: Date;
  readonly originUs: number;
  readonly timer: NodeJS.Timeout;
}

export class EngineProfiler implements Profiler {
  readonly #options: ProfilerOptions;
  readonly #nowUs = monotonicClock();
  #running: Running | null = null;
  #starting: Promise<unknown> | null = null;
  /** The recording that is being written, or was since nobody asked for it. */
  #written: Promise<ProfileStopped> | null = null;
  #writing = false;

  constructor(options: ProfilerOptions) {
    this.#options = options;
  }

  async start(): Promise<ProfileStarted> {
    if (this.#running !== null || this.#starting !== null)
      throw new InferdError('request_failed', 'A profile is being recorded already; stop it first');
    if (this.#writing) throw new InferdError('request_failed', 'The last profile is still being written; try again in a moment');
    const recorders = this.#options.recorders();
    if (recorders.length === 0) throw absent(this.#options.state());
    checkProfileFolder(this.#options.directory, extentOf(recorders));
    this.#written = null;
    const starting = this.#record(recorders);
    this.#starting = starting;
    try {
      this.#running = await starting;
    } finally {
      this.#starting = null;
    }
    this.#options.log.info({ directory: this.#options.directory }, 'a profile is being recorded');
    return { status: 'recording', files: [] };
  }

  stop(): Promise<ProfileStopped> {
    if (this.#running !== null) this.#finish(this.#running, 'asked');
    const written = this.#written;
    if (written === null) return Promise.reject(new InferdError('request_failed', 'No profile is being recorded'));
    return written.finally(() => {
      if (this.#written === written) this.#written = null;
    });
  }

  /** Writes what is being recorded. Never rejects. */
  async close(): Promise<void> {
    await this.#starting?.catch(() => {});
    if (this.#running !== null) this.#finish(this.#running, 'the daemon stops');
    await this.#written?.catch(() => {});
  }

  async #record(recorders: readonly Recorder[]): Promise<Running> {
    const { maxEvents, maxSeconds } = this.#options;
    const startedAt = new Date();
    const originUs = this.#nowUs();
    const begun = await Promise.allSettled(recorders.map((one) => one.ask((call) => ({ k: 'record', call, maxEvents }), CALL_DEADLINE_MS)));
    const failed = begun.find((one) => one.status === 'rejected');
    if (failed !== undefined) {
      // Those that record must not go on for a recording that nobody will take.
      const others = recorders.filter((_, i) => begun[i]?.status === 'fulfilled');
      await Promise.allSettled(others.map((one) => one.ask((call) => ({ k: 'handover', call }), CALL_DEADLINE_MS)));
      throw failed.reason;
    }
    const timer = setTimeout(() => {
      if (this.#running?.timer === timer) this.#finish(this.#running, 'max_seconds');
    }, maxSeconds * 1000);
    timer.unref();
    return { recorders, startedAt, originUs, timer };
  }

  /** Ends the recording; the result, or why it was lost, waits in `#written`. */
  #finish(running: Running, reason: string): void {
    clearTimeout(running.timer);
    this.#running = null;
    this.#writing = true;
    const { log } = this.#options;
    const written = this.#collect(running, reason).finally(() => {
      this.#writing = false;
    });
    this.#written = written;
    written.then(
      ({ files }) => log.info({ files, reason }, 'a profile was written'),
      (error: unknown) => log.error({ ...errorFields(error), reason }, 'a profile was lost'),
    );
  }

  async #collect({ recorders, startedAt, originUs }: Running, reason: string): Promise<ProfileStopped> {
    const endedUs = this.#nowUs();
    const handedOver = await Promise.all(recorders.map((one) => one.ask((call) => ({ k: 'handover', call }), CALL_DEADLINE_MS))).catch(
      (error: unknown) => {
        throw lost(error);
      },
    );
    const head = { startedAt, originUs, reason, seconds: Math.round(endedUs - originUs) / 1e6 };
    const written: Written[] = [];
    const extent = extentOf(recorders);
    for (const [i, one] of recorders.entries()) {
      if (one.kind !== 'executor') continue;
      const { spans, device, deviceOffsetUs } = handedOver[i] as ExecutorRecording; // proof: an executor's answer to handover
      const shown = device === null ? null : shifted(device, deviceOffsetUs);
      const own = recorders.findIndex(({ kind, group }) => kind === 'scheduler' && group === one.group);
      const scheduler = handedOver[own] as Recording; // proof: its answer to handover
      const steps = stepFacts(scheduler);
      const folder = rankFolder(this.#options.directory, extent, one.rank);
      written.push(await this.#write({ rank: one.rank, scheduler, executor: spans, device: shown }, { steps, head, folder }));
    }
    return { status: 'written', files: written.map((one) => one.file), ended_by: reason, summary: written.map((one) => one.summary) };
  }

  async #write(
    recording: RankRecording,
    { steps, head, folder }: { readonly steps: ReadonlyMap<number, StepFacts>; readonly head: Head; readonly folder: string },
  ): Promise<Written> {
    const { version } = this.#options;
    const model = this.#options.model();
    const { rank, scheduler, executor, device } = recording;
    const summary: Written['summary'] = {
      rank,
      device: { source: device?.source ?? 'none', note: device?.note ?? 'This engine does not record its device.' },
      events: { scheduler: scheduler.size, executor: executor.size, device: device?.kind.length ?? 0 },
      dropped: { scheduler: scheduler.dropped, executor: executor.dropped, device: device?.dropped ?? 0 },
      ...summaryOf(recording, steps),
    };
    const facts = {
      producer: `inferd ${version}`,
      model: model?.name ?? null,
      backend: model?.backend ?? null,
      started_at: head.startedAt.toISOString(),
      clock: 'microseconds of the monotonic clock since the start of the recording',
      origin_us: head.originUs,
      seconds: head.seconds,
      ended_by: head.reason,
      summary,
    };
    const deviceName = model?.backend ?? 'device';
    const pieces = chromeTrace({ recording, steps, originUs: head.originUs, deviceName, facts });
    const stamp = head.startedAt.toISOString().replaceAll(':', '-');
    const file = join(folder, `${stamp}.trace.json.gz`);
    try {
      await pipeline(
        Readable.from(pieces, { objectMode: true, highWaterMark: 1 }),
        createGzip({ level: COMPRESSION }),
        createWriteStream(`${file}.part`),
      );
      renameSync(`${file}.part`, file);
    } catch (error) {
      rmSync(`${file}.part`, { force: true });
      const reason = (error as NodeJS.ErrnoException).code ?? (error as Error).message;
      throw new InferdError('request_failed', `The profile could not be written to ${file} (${reason})`);
    }
    return { file, summary };
  }
}

interface Head {
  readonly startedAt: Date;
  readonly originUs: number;
  readonly seconds: number;
  readonly reason: string;
}

interface Written {
  readonly file: string;
  readonly summary: ProfileStopped['summary'][number];
}

/** How many groups there are, and ranks in each. */
interface Extent {
  readonly groups: number;
  readonly ranks: number;
}

function extentOf(recorders: readonly Recorder[]): Extent {
  const groups = new Set(recorders.map(({ group }) => group)).size;
  return { groups, ranks: recorders.filter(({ kind }) => kind === 'executor').length / groups };
}

/** `rank`: counted through all groups. */
function rankFolder(directory: string, { groups, ranks }: Extent, rank: number): string {
  const own = `tp${rank % ranks}`;
  return join(directory, groups === 1 ? own : `dp${Math.floor(rank / ranks)}_${own}`);
}

/** Makes the folders of all ranks. @throws InferdError with one sentence when files cannot be written there */
export function checkProfileFolder(directory: string, extent: Extent): void {
  for (let rank = 0; rank < extent.groups * extent.ranks; rank++) {
    const folder = rankFolder(directory, extent, rank);
    try {
      makeFolder(folder);
      accessSync(folder, constants.W_OK | constants.X_OK);
    } catch (error) {
      const reason = (error as NodeJS.ErrnoException).code ?? 'unknown error';
      throw new InferdError('request_failed', `Profiles cannot be written to ${folder} (${reason}); change profile.directory.`);
    }
  }
}

function absent(state: EngineState): InferdError {
  if (state === 'starting') return new InferdError('model_loading');
  if (state === 'stopped' || state === 'draining') return new InferdError('shutting_down');
  return new InferdError('engine_failure', 'The engine does not run now', { retriable: state === 'restarting' });
}

function lost(error: unknown): InferdError {
  const why = error instanceof Error ? error.message : String(error);
  return new InferdError('engine_failure', `The recording is lost: the engine failed meanwhile (${why})`, { retriable: false });
}
