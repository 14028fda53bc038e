/** A real daemon with the embedded model inside the test process: its own folders, a free port, a quiet log. */

import { join } from 'node:path';
import { type Log, silentLog } from '../../../actors/runtime/log.js';
import { loadConfig } from '../../../config/load.js';
import { resolveModelFolder } from '../../../config/models/model-folder.js';
import { type Daemon, startDaemon } from '../../../daemon/daemon.js';
import { startEngine } from '../../../daemon/life/engine.js';
import { tempFolder } from '../temp-folder.js';
import { type Answer, RpcSocket } from '../wire/rpc-socket.js';

export interface TestDaemon {
  readonly daemon: Daemon;
  readonly ws: string;
  readonly http: string;
  readonly env: NodeJS.ProcessEnv;
  /** A new connection. */
  open(protocols?: string | string[]): Promise<RpcSocket>;
  stats(): Promise<Answer>;
  /** Resolves with the statistics when no request holds a KV block any more, of the device or the host. @throws when that takes too long. */
  untilFreed(): Promise<Answer>;
  /** How often requests were preempted by swapping, of those that have ended: at most scheduler.kept_timelines. */
  swaps(): Promise<number>;
  /** What follows makes a part of the daemon fail: `close` is not to mind. */
  mayFail(): void;
  /** @throws when a part of the daemon failed, which its clients need not notice: an engine that starts again goes on with their requests. */
  close(): Promise<void>;
}

/** Folders for one daemon, and nothing of the user's environment that could change it. */
export function privateEnv(): NodeJS.ProcessEnv & { readonly HOME: string } {
  const home = tempFolder();
  const path = process.env['PATH'];
  return { HOME: home, XDG_RUNTIME_DIR: join(home, 'run'), ...(path === undefined ? {} : { PATH: path }) };
}

/**
 * `sets`: "section.key=value", as for --set. On the CPU unless they say otherwise. `executorModule`: in place of the native engine.
 * `extraEnv`: of the daemon, besides its folders.
 */
export async function startTestDaemon(
  sets: readonly string[] = [],
  executorModule?: string,
  extraEnv: NodeJS.ProcessEnv = {},
): Promise<TestDaemon> {
  const env = { ...privateEnv(), ...extraEnv };
  const failures: string[] = [];
  let mayFail = false;
  const log: Log = { ...silentLog, error: (fields, message) => void failures.push(`${message}: ${JSON.stringify(fields)}`) };
  const { config } = loadConfig({ sets: ['server.port=0', 'inference.device=cpu', 'inference.threads=2', ...sets], env });
  const daemon = await startDaemon({
    config,
    model: resolveModelFolder(config, env),
    log,
    publish: true,
    signals: false,
    env,
    startEngine: (c, model, hooks) => startEngine(c, model, hooks, executorModule === undefined ? {} : { executorModule }),
  });
  const { ws, http } = daemon.addresses;
  const headers: Record<string, string> = daemon.token === null ? {} : { authorization: `Bearer ${daemon.token}` };
  const control = await RpcSocket.open(ws, [], headers);
  const stats = () => control.call('stats.get');
  return {
    daemon,
    ws,
    http,
    env,
    stats,
    open: (protocols = []) => RpcSocket.open(ws, protocols, headers),
    async untilFreed() {
      for (let i = 0; i < 400; i++) {
        const now = await stats();
        const { kv, requests: r } = now;
        if (kv?.used_blocks === 0 && kv.swap_used === 0 && r?.running === 0 && r.waiting === 0 && r.swapped === 0) return now;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      throw new Error(`blocks are still held: ${JSON.stringify(await stats())}`);
    },
    async swaps() {
      const { ended } = await control.call('requests.list', { ended: true });
      const answers = await Promise.all((ended ?? []).map(({ request_id }) => control.call('requests.get', { request_id })));
      const marks = answers.flatMap(({ request }) => (request?.prompts ?? []).flatMap((prompt) => prompt.marks));
      return marks.filter(({ kind, how }) => kind === 'preempted' && how === 'swap').length;
    },
    mayFail() {
      mayFail = true;
    },
    async close() {
      await control.close();
      await daemon.stop('the test is over');
      if (failures.length > 0 && !mayFail) throw new Error(`The daemon failed meanwhile.\n${failures.join('\n')}`);
    },
  };
}
