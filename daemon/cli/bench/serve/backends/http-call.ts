/** HTTP for the load: connections are kept and reused, so that only the first requests pay for opening them; no limit to their number. */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';

/** The server answered with a status of its own. */
export class HttpError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(`HTTP ${status}: ${message}`);
    this.name = 'HttpError';
    this.status = status;
  }
}

/** Most characters of an error's body that are told. */
const toldLength = 300;
/** Largest answer that is read whole. */
const mostBody = 64 * 2 ** 20;

export class HttpCaller {
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #agent: HttpAgent;

  constructor(base: string, headers: Readonly<Record<string, string>>) {
    this.#base = base;
    this.#headers = headers;
    this.#agent = base.startsWith('https:') ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true });
  }

  /** The response of a POST, or of a GET where there is no body, once its status is known to be good. @throws HttpError */
  async send(path: string, body: unknown, signal?: AbortSignal): Promise<IncomingMessage> {
    const response = await this.#open(path, body, signal);
    const { statusCode = 0 } = response;
    if (statusCode >= 200 && statusCode < 300) return response;
    throw new HttpError(statusCode, reasonOf(await wholeText(response)));
  }

  /** @throws HttpError, or SyntaxError when the answer is no JSON */
  async json(path: string, body?: unknown): Promise<unknown> {
    return JSON.parse(await wholeText(await this.send(path, body)));
  }

  close(): void {
    this.#agent.destroy();
  }

  #open(path: string, body: unknown, signal: AbortSignal | undefined): Promise<IncomingMessage> {
    const text = body === undefined ? null : JSON.stringify(body);
    const open = this.#base.startsWith('https:') ? httpsRequest : httpRequest;
    const type = text === null ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    return new Promise((resolve, reject) => {
      const request = open(`${this.#base}${path}`, {
        method: text === null ? 'GET' : 'POST',
        agent: this.#agent,
        headers: { accept: '*/*', ...type, ...this.#headers },
        ...(signal === undefined ? {} : { signal }),
      });
      request.on('response', resolve).on('error', (error: NodeJS.ErrnoException) => {
        // A kept connection that the server closed just then: the request never reached it.
        if (request.reusedSocket && error.code === 'ECONNRESET') this.#open(path, body, signal).then(resolve, reject);
        else reject(error);
      });
      request.end(text ?? undefined);
    });
  }
}

async function wholeText(response: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of response) {
    length += (part as Buffer).length;
    if (length > mostBody) throw new Error(`The answer is longer than ${mostBody} bytes`);
    parts.push(part as Buffer);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** The message of OpenAI's error object, else the beginning of the body. */
function reasonOf(body: string): string {
  try {
    const message = messageOf(JSON.parse(body));
    if (message !== null) return message;
  } catch {
    // Not JSON: told as it is.
  }
  return body.slice(0, toldLength).replace(/\s+/g, ' ').trim();
}

/** `{error: {message}}`, `{error: "..."}`, `{message}`; null for anything else. */
export function messageOf(value: unknown): string | null {
  const { error, message } = (value ?? {}) as { error?: unknown; message?: unknown };
  if (typeof error === 'string') return error;
  const inner = (error as { message?: unknown } | null | undefined)?.message;
  if (typeof inner === 'string') return inner;
  return typeof message === 'string' ? message : null;
}
