/**
 * HTTP for the load: connections are kept and reused, so that only the first requests pay for opening them; no limit to their number. What
 * is done before a request is written counts as the server's time to the first token, so it is little: the address is read and the headers
 * are a list once for all requests (0.13 to 0.2 ms a request on a host of two cores; 0.3 with an address, headers and a signal to take apart).
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { urlToHttpOptions } from 'node:url';

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
  readonly #to: RequestOptions;
  /** In front of each path. */
  readonly #prefix: string;
  /** Of a GET and of a POST, names and values in turn. */
  readonly #getHeaders: readonly string[];
  readonly #postHeaders: readonly string[];
  readonly #open: typeof httpRequest;
  readonly #agent: HttpAgent;

  /** @param base an address of http: or https:; its path stands in front of each that is asked for. @throws TypeError when it is none */
  constructor(base: string, headers: Readonly<Record<string, string>>) {
    const url = new URL(base);
    const secure = url.protocol === 'https:';
    const { hostname, port, auth } = urlToHttpOptions(url);
    this.#agent = secure ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true });
    this.#open = secure ? httpsRequest : httpRequest;
    this.#to = { hostname, port, agent: this.#agent };
    this.#prefix = url.pathname.replace(/\/$/, '');
    const login = auth ? { authorization: `Basic ${Buffer.from(auth).toString('base64')}` } : {};
    const own = { host: url.host, accept: '*/*', ...login };
    this.#getHeaders = listed(own, headers);
    this.#postHeaders = listed({ ...own, 'content-type': 'application/json' }, headers);
  }

  /** The response of a POST, or of a GET where there is no body, once its status is known to be good. @throws HttpError */
  async send(path: string, body: unknown, signal?: AbortSignal): Promise<IncomingMessage> {
    const response = await this.#ask(path, body, signal);
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

  #ask(path: string, body: unknown, signal: AbortSignal | undefined): Promise<IncomingMessage> {
    const text = body === undefined ? null : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const request = this.#open({
        ...this.#to,
        path: `${this.#prefix}${path}`,
        method: text === null ? 'GET' : 'POST',
        headers: text === null ? this.#getHeaders : [...this.#postHeaders, 'content-length', String(Buffer.byteLength(text))],
      });
      request.on('response', resolve).on('error', (error: NodeJS.ErrnoException) => {
        // A kept connection that the server closed just then: the request never reached it.
        if (request.reusedSocket && error.code === 'ECONNRESET') this.#ask(path, body, signal).then(resolve, reject);
        else reject(error);
      });
      request.end(text ?? undefined);
      if (signal === undefined) return;
      const drop = (): void => void request.destroy(signal.reason as Error);
      signal.addEventListener('abort', drop);
      request.once('close', () => signal.removeEventListener('abort', drop));
    });
  }
}

/** Names and values in turn; a name that `given` has too, however it is written, comes from there. */
function listed(own: Readonly<Record<string, string>>, given: Readonly<Record<string, string>>): readonly string[] {
  const all = new Map(Object.entries(own));
  for (const [name, value] of Object.entries(given)) all.set(name.toLowerCase(), value);
  return [...all].flat();
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
