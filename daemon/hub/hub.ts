/**
 * The pulls that the daemon runs for its clients: callers who ask for the same one share it, their number is bounded, and each ends when the
 * last of its callers is gone or the daemon stops. Main thread, one a daemon; each transfer has a thread of its own.
 */
import { readdirSync } from 'node:fs';
import { type ErrorKind, InferdError, invalidParams } from '../../actors/messages/errors.js';
import type { Cancellation } from '../../actors/runtime/cancellation.js';
import type { Log } from '../../actors/runtime/log.js';
import { listModels } from '../../config/models/model-folder.js';
import { hubCachePath } from '../../config/paths.js';
import type { Config } from '../../config/schema.js';
import type { ModelHub, PulledModel, PullNews, PullRequest } from '../../rpc/schemas/hub.js';
import { removeModel } from './cache/remove.js';
import { PullError, type PullReason } from './error.js';
import type { PullEvent } from './progress.js';
import { pullApart } from './pull-apart.js';
import { checkSpec, type PullSpec, parseSpec } from './repository/spec.js';
import { hubEndpoint } from './web/endpoint.js';

export interface DaemonHub extends ModelHub {
  /** Ends all pulls; resolves when none runs. What came is kept. */
  close(): Promise<void>;
}

const kinds: Readonly<Record<PullReason, ErrorKind>> = {
  usage: 'invalid_params',
  not_found: 'model_not_found',
  refused: 'request_failed',
  bad_data: 'request_failed',
  network: 'request_failed',
  no_space: 'request_failed',
  cache: 'request_failed',
  in_use: 'request_failed',
  cancelled: 'cancelled',
};

/** The part of inferd that needs no download. */
const embedded = 'demo';

interface RunningPull {
  readonly done: Promise<PulledModel>;
  readonly listeners: Set<(news: PullNews) => void>;
  readonly stop: AbortController;
}

export function createHub(config: Config, env: NodeJS.ProcessEnv, log: Log): DaemonHub {
  const running = new Map<string, RunningPull>();
  const cache = hubCachePath(config.inference.cache_dir, env);
  let closed = false;

  const begin = (key: string, spec: PullSpec, { include, exclude }: PullRequest): RunningPull => {
    const stop = new AbortController();
    const listeners = new Set<(news: PullNews) => void>();
    const onEvent = (event: PullEvent): void => {
      const news = newsOf(event);
      for (const listener of listeners) listener(news);
    };
    const work = async (): Promise<PulledModel> => {
      log.info({ model: spec.id, revision: spec.revision }, 'a download begins');
      const endpoint = hubEndpoint(config.inference.api_key, env);
      const pulled = await pullApart({ ...spec, include, exclude, cache, endpoint, limits: config.hub, signal: stop.signal, onEvent });
      log.info({ model: spec.id, commit: pulled.commit, bytes: pulled.bytes }, 'a download is done');
      return { model: pulled.id, revision: pulled.commit, path: pulled.path, files: pulled.numFiles, bytes: pulled.bytes };
    };
    const done = work().finally(() => running.delete(key));
    done.catch((error: unknown) =>
      log.warn({ model: spec.id, reason: error instanceof PullError ? error.message : String(error) }, 'a download ended'),
    );
    const pull = { done, listeners, stop };
    running.set(key, pull);
    return pull;
  };

  const wait = async (pull: RunningPull, onNews: (news: PullNews) => void, cancellation: Cancellation): Promise<PulledModel> => {
    let leave = (): void => {};
    const left = new Promise<never>((_, reject) => {
      leave = () => {
        pull.listeners.delete(onNews);
        if (pull.listeners.size === 0) pull.stop.abort();
        reject(new InferdError('cancelled'));
      };
    });
    pull.listeners.add(onNews);
    cancellation.listen(leave);
    if (cancellation.cancelled) leave();
    try {
      return await Promise.race([pull.done, left]);
    } finally {
      cancellation.unlisten(leave);
      pull.listeners.delete(onNews);
    }
  };

  return {
    async pull(request, onNews, cancellation) {
      if (request.model === embedded) return embeddedModel(config, env);
      const spec = asked(() => {
        const read = parseSpec(request.model);
        return checkSpec({ ...read, revision: request.revision ?? read.revision });
      });
      const key = JSON.stringify([spec, request.include, request.exclude]);
      try {
        for (;;) {
          if (closed) throw new InferdError('shutting_down');
          const known = running.get(key);
          // One that ends because everybody left is no place to join: it is waited for, and another begins.
          if (known?.stop.signal.aborted) await known.done.catch(() => {});
          else if (known === undefined && running.size >= config.hub.max_downloads)
            throw new InferdError('rate_limited', `${running.size} downloads run already (hub.max_downloads); try again when one is done`);
          else return await wait(known ?? begin(key, spec, request), onNews, cancellation);
        }
      } catch (error) {
        throw failure(error, closed);
      }
    },
    async remove(model, cancellation) {
      const spec = asked(() => parseSpec(model));
      if (spec.quant !== null)
        throw invalidParams([{ path: 'model', message: 'takes no quantization: name ORG/NAME, or ORG/NAME@REVISION' }]);
      const stop = new AbortController();
      const onCancel = (): void => stop.abort();
      cancellation.listen(onCancel);
      try {
        const revision = model.includes('@') ? spec.revision : null;
        const { bytes } = await removeModel({ cache, id: spec.id, revision, signal: stop.signal, onWait: () => {} });
        log.info({ model, bytes }, 'a model was deleted');
        return bytes;
      } catch (error) {
        if (error instanceof PullError && error.reason === 'not_found') return null;
        throw failure(error, false);
      } finally {
        cancellation.unlisten(onCancel);
      }
    },
    async close() {
      closed = true;
      const all = [...running.values()];
      for (const { stop } of all) stop.abort();
      await Promise.allSettled(all.map(({ done }) => done));
    },
  };
}

function embeddedModel(config: Config, env: NodeJS.ProcessEnv): PulledModel {
  const found = listModels(config, env).find(({ name }) => name === embedded);
  if (found === undefined)
    throw new InferdError('model_not_found', 'The embedded demo model was not found beside the program; install inferd again');
  return { model: embedded, revision: null, path: found.path, files: readdirSync(found.path).length, bytes: found.sizeBytes };
}

/** A name from a client. @throws InferdError invalid_params */
function asked(read: () => PullSpec): PullSpec {
  try {
    return read();
  } catch (error) {
    if (error instanceof PullError) throw invalidParams([{ path: 'model', message: error.message }]);
    throw error;
  }
}

function failure(error: unknown, closed: boolean): unknown {
  if (!(error instanceof PullError)) return error;
  if (closed && error.reason === 'cancelled') return new InferdError('shutting_down');
  return new InferdError(kinds[error.reason], error.message, { reason: error.reason });
}

function newsOf(event: PullEvent): PullNews {
  switch (event.kind) {
    case 'progress': {
      const { file, bytes, total, allBytes, allTotal } = event;
      return { kind: 'pull', file, bytes, total, all_bytes: allBytes, all_total: allTotal };
    }
    case 'plan':
      return { kind: 'notice', message: `Fetching ${event.numFiles} files, ${event.bytes} bytes` };
    case 'retry':
      return { kind: 'notice', message: `${event.message}; trying again in ${(event.waitMs / 1000).toFixed(1)} s` };
    case 'rotten':
      return { kind: 'notice', message: `${event.file} is not what was promised (${event.message}); fetching it again` };
    case 'waiting':
      return { kind: 'notice', message: `Process ${event.pid} works on the same model; waiting for its end` };
    default:
      return event satisfies never;
  }
}
