/** The thread of bystander.ts. */
import { parentPort, workerData } from 'node:worker_threads';
import { addUp, RpcSocket } from '../../helpers/wire/rpc-socket.js';
import type { Answered } from './bystander.js';

let over = false;
parentPort?.once('message', () => {
  over = true;
});
const socket = await RpcSocket.open(workerData as string);
for (let i = 0; !over; i++) {
  const first = 10 + (i % 30);
  const want = Array.from({ length: 7 }, (_, n) => first + n).join(', ');
  const started = performance.now();
  const id = socket.send('chat.completions.create', {
    messages: [{ role: 'user', content: `List the numbers from ${first} to ${first + 6}.` }],
    temperature: 0,
    stream: true,
  });
  const reply = await socket.reply(id);
  const [text] = reply.result === undefined ? [] : addUp(socket.events(id), 1).texts;
  const fault = reply.error !== undefined ? JSON.stringify(reply.error) : text === want ? null : `wanted ${want}, got ${text}`;
  parentPort?.postMessage({ ms: performance.now() - started, fault } satisfies Answered);
  socket.log.length = 0;
}
await socket.close();
