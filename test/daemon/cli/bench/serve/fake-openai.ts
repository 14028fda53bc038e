/** A server in the shape of OpenAI's that answers each request as the test says: whole, refused, with an error in the stream, or cut. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Behaviour = 'whole' | 'two at once' | 'no usage' | 'refused' | 'error event' | 'cut' | 'destroyed' | 'not JSON' | 'slow';

export interface FakeOpenAi {
  readonly url: string;
  /** Bodies of the requests for answers, in their order. */
  readonly bodies: readonly Readonly<Record<string, unknown>>[];
  readonly headers: readonly IncomingMessage['headers'][];
  close(): Promise<void>;
}

/** Pieces of each answer, and what the usage says of it. */
export const answerPieces = ['one ', 'two ', 'three ', 'four'] as const;
export const fakeUsage = { prompt_tokens: 7, completion_tokens: 9, total_tokens: 16 } as const;

/** `behave`: of the nth request for an answer. It has no tokenizer. */
export async function startFakeOpenAi(behave: (n: number) => Behaviour): Promise<FakeOpenAi> {
  const bodies: Readonly<Record<string, unknown>>[] = [];
  const headers: IncomingMessage['headers'][] = [];
  const server = createServer((request, response) => {
    void (async () => {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      const { url = '' } = request;
      if (url === '/v1/models') response.end(JSON.stringify({ data: [{ id: 'fake/model' }] }));
      else if (!url.endsWith('completions')) response.writeHead(404).end('nothing here');
      else {
        headers.push(request.headers);
        const n = bodies.push(JSON.parse(Buffer.concat(parts).toString()) as Readonly<Record<string, unknown>>) - 1;
        await answer(behave(n), url.includes('chat'), response);
      }
    })();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    bodies,
    headers,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** A server that is closed waits for none of them. */
const pause = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms).unref());

async function answer(behaviour: Behaviour, chat: boolean, response: ServerResponse): Promise<unknown> {
  if (behaviour === 'refused') return response.writeHead(503).end(JSON.stringify({ error: { message: 'too busy' } }));
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const event = (value: unknown): string => `data: ${JSON.stringify(value)}\r\n\r\n`;
  const choice = (text: string, finish: string | null = null) =>
    event({ choices: [{ index: 0, ...(chat ? { delta: { content: text } } : { text }), finish_reason: finish }] });
  response.write(': hello\n\n');
  if (behaviour === 'two at once') response.write(answerPieces.map((piece) => choice(piece)).join(''));
  else
    for (const [i, piece] of answerPieces.entries()) {
      if (i === 2 && behaviour === 'error event') return response.end(event({ error: { message: 'the engine died', code: 500 } }));
      if (i === 2 && behaviour === 'cut') return response.end();
      if (i === 2 && behaviour === 'destroyed') return response.destroy();
      if (i === 2 && behaviour === 'not JSON') return response.end('data: {oh no\n\n');
      response.write(choice(piece));
      await pause(behaviour === 'slow' ? 5000 : 4);
    }
  response.write(choice('', 'length'));
  if (behaviour !== 'no usage') response.write(event({ choices: [], usage: fakeUsage }));
  return response.end('data: [DONE]\n\n');
}
