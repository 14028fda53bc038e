/**
 * Tells systemd how the daemon fares (sd_notify): READY, STATUS, WATCHDOG, RELOADING, STOPPING, and EXTEND_TIMEOUT_USEC while the model loads.
 *
 * Node cannot open Unix datagram sockets, so the `systemd-notify` program carries the message; a unit therefore needs NotifyAccess=all.
 * One child at a time; what happens meanwhile is merged, so nothing queues up but the begin and the end of a reload, in this order. Without NOTIFY_SOCKET every call does nothing.
 * Runs on the main thread.
 */

import { spawn } from 'node:child_process';
import type { Log } from '../../actors/runtime/log.js';

export interface Notifier {
  status(text: string): void;
  /** The start goes on: asks for more time, at most once every few seconds. */
  loading(text: string): void;
  /** From now on `healthy` is asked at half the watchdog's interval, and the watchdog is fed while it says true. */
  ready(text: string, healthy: () => boolean): void;
  /** Runs `work` between RELOADING and READY; alone while the start is not over. */
  reloading(work: () => void): void;
  stopping(): void;
  /** Ends the watchdog timer. */
  close(): void;
}

const EXTEND_MS = 30_000;
const EXTEND_EVERY_MS = 5000;
const CHILD_TIMEOUT_MS = 5000;

const silent: Notifier = { status() {}, loading() {}, ready() {}, reloading: (work) => work(), stopping() {}, close() {} };

/** Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID of `env`. */
export function createNotifier(env: NodeJS.ProcessEnv, log: Log): Notifier {
  if (!env['NOTIFY_SOCKET']) return silent;
  /** Told by the next child. */
  let pending = new Map<string, string>();
  /** Told by the one after it: what must not come in one message with `pending`. */
  let after: Map<string, string> | null = null;
  let running = false;
  let isReady = false;
  let watchdog: NodeJS.Timeout | null = null;
  let extendedAt = -Infinity;

  const flush = (): void => {
    if (running || pending.size === 0) return;
    running = true;
    const words = [...pending].map(([name, value]) => `${name}=${value}`);
    pending = after ?? new Map();
    after = null;
    const child = spawn('systemd-notify', [`--pid=${process.pid}`, ...words], { env, stdio: 'ignore', timeout: CHILD_TIMEOUT_MS });
    child.unref();
    let over = false;
    const end = (why: string | null): void => {
      if (over) return;
      over = true;
      running = false;
      if (why !== null) log.debug({ words, why }, 'systemd-notify failed');
      flush();
    };
    child.once('error', (error) => end(error.message));
    child.once('exit', (code, signal) => end(code === 0 ? null : `it ended with ${code ?? signal}`));
  };
  const say = (name: string, value: string): void => {
    (after ?? pending).set(name, value.replaceAll(/[\r\n]+/g, ' '));
    flush();
  };

  return {
    status: (text) => say('STATUS', text),
    loading(text) {
      const now = performance.now();
      if (now - extendedAt < EXTEND_EVERY_MS) return;
      extendedAt = now;
      pending.set('EXTEND_TIMEOUT_USEC', String(EXTEND_MS * 1000));
      say('STATUS', text);
    },
    ready(text, healthy) {
      isReady = true;
      pending.set('READY', '1');
      say('STATUS', text);
      const usec = Number(env['WATCHDOG_USEC']);
      const forUs = env['WATCHDOG_PID'] === undefined || env['WATCHDOG_PID'] === String(process.pid);
      if (!(usec > 0) || !forUs) return;
      watchdog = setInterval(() => {
        if (healthy()) say('WATCHDOG', '1');
      }, usec / 2000);
      watchdog.unref();
    },
    reloading(work) {
      if (!isReady) return work();
      // A reload that systemd has not heard of yet, or not the end of, is one with this.
      after ??= new Map();
      pending.set('RELOADING', '1');
      pending.set('MONOTONIC_USEC', String(process.hrtime.bigint() / 1000n));
      pending.delete('READY');
      work();
      after.set('READY', '1');
      flush();
    },
    stopping: () => say('STOPPING', '1'),
    close() {
      if (watchdog !== null) clearInterval(watchdog);
    },
  };
}
