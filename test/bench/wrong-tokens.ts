/**
 * What wrong tokens cost a bystander: pings and the gaps of a stream over a WebSocket that is in, without and with a flood of requests that
 * show wrong tokens. Prints one JSON line each. `node dist/test/bench/wrong-tokens.js [RATE [SECONDS]]`; RATE a second, 10,000 when not given.
 * The daemon and the flood are processes of their own; on a machine with few cores they compete for them as well.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect as connectSocket, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect } from '../../rpc/client/node.js';

const [first, ...rest] = process.argv.slice(2);
if (first === 'flood') await flood(Number(rest[0]), Number(rest[1]));
else await measure(Number(first ?? 10_000), Number(rest[0] ?? 5));

/** One request at a time on each connection, which is opened again when it was closed; on time as far as the machine goes. */
async function flood(port: number, rate: number): Promise<void> {
  const counts = { sent: 0, refused: 0 };
  const free: Socket[] = [];
  const request = () =>
    `GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong-${Math.random()}${'x'.repeat(30)}\r\n\r\n`;
  const open = (): void => {
    const socket = connectSocket(port, '127.0.0.1');
    socket.on('connect', () => free.push(socket));
    socket.on('data', (data) => {
      if (data.toString('latin1').startsWith('HTTP/1.1 401')) counts.refused++;
    });
    socket.on('error', () => {});
    socket.on('close', open);
  };
  for (let i = 0; i < 128; i++) open();
  const start = performance.now();
  setInterval(() => process.send?.({ ...counts, seconds: Math.round((performance.now() - start) / 100) / 10 }), 250);
  for (;;) {
    const due = ((performance.now() - start) / 1000) * rate;
    const socket = counts.sent < due ? free.pop() : undefined;
    if (socket === undefined) await sleep(1);
    else if (socket.writable) {
      socket.write(request());
      counts.sent++;
    }
  }
}

async function measure(rate: number, seconds: number): Promise<void> {
  const home = mkdtempSync(join(tmpdir(), 'inferd-flood-'));
  const env = { ...process.env, HOME: home, XDG_RUNTIME_DIR: join(home, 'run'), XDG_STATE_HOME: join(home, 'state') };
  const host = fileURLToPath(new URL('../e2e/daemon-host.js', import.meta.url));
  const daemon = spawn(process.execPath, [host, 'auth.mode=token', 'server.port=0', 'log.level=silent'], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const [line] = (await once(daemon.stdout, 'data')) as [Buffer];
    const { http } = JSON.parse(line.toString()) as { http: string };
    const client = await connect({ env });
    const look = async (name: string) => {
      const pings: number[] = [];
      const gaps: number[] = [];
      let over = false;
      const streaming = (async () => {
        while (!over) {
          const stream = await client.chat.completions.create({
            messages: [{ role: 'user', content: 'Tell me a story.' }],
            stream: true,
            max_tokens: 200,
          });
          let last = performance.now();
          for await (const _ of stream) {
            gaps.push(performance.now() - last);
            last = performance.now();
            if (over) break;
          }
        }
      })();
      const until = performance.now() + seconds * 1000;
      while (performance.now() < until) {
        const sent = performance.now();
        await client.call('ping', {});
        pings.push(performance.now() - sent);
        await sleep(10);
      }
      over = true;
      await streaming;
      return { name, pings: pings.length, ping_ms: shares(pings), gaps: gaps.length, gap_ms: shares(gaps) };
    };
    await look('warm-up');
    console.log(JSON.stringify(await look('without')));
    const flooder = spawn(process.execPath, [fileURLToPath(import.meta.url), 'flood', new URL(http).port, String(rate)], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    let counts: object = {};
    flooder.on('message', (message) => (counts = message as object));
    await sleep(1000);
    console.log(JSON.stringify({ ...(await look('with')), flood: counts }));
    flooder.kill();
    await client.close();
  } finally {
    daemon.kill();
    rmSync(home, { recursive: true, force: true });
  }
}

function shares(values: number[]): Record<string, number> {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number) => Math.round((sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0) * 100) / 100;
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}
