/**
 * Servers of OpenAI's HTTP API, inferd among them: completions and chat completions as server-sent events. vLLM's are the same with some
 * fields more, as ATOM's benchmark sends them. An answer is whole when it said [DONE] or why it finished; one that ends before was cut.
 */
import type { IncomingMessage } from 'node:http';
import { CliError, EXIT } from '../../../verb.js';
import type { Tokenizer } from '../datasets/dataset.js';
import type { BenchRequest, Piece, TokenUsage } from '../request.js';
import type { Address, Asking, Backend, BenchServer, ServerModel } from './backend.js';
import { HttpCaller, HttpError, messageOf } from './http-call.js';
import { SseReader } from './sse-reader.js';

interface Face {
  readonly endpoint: string;
  readonly takesIds: boolean;
  body(request: BenchRequest, asking: Asking): object;
  /** The text of a choice of a chunk. */
  textOf(choice: Choice): string;
}

interface Choice {
  readonly text?: string | null;
  readonly delta?: { readonly content?: string | null };
  readonly finish_reason?: string | null;
}

interface Chunk {
  readonly choices?: readonly Choice[];
  readonly usage?: { readonly prompt_tokens?: number; readonly completion_tokens?: number } | null;
}

const streamed = { temperature: 0, stream: true, stream_options: { include_usage: true } } as const;
const eos = ({ ignoreEos }: Asking): object => (ignoreEos ? { ignore_eos: true } : {});
const bestOf = (asking: Asking): object => (asking.bestOf > 1 ? { best_of: asking.bestOf } : {});

const completions: Face = {
  endpoint: '/v1/completions',
  takesIds: true,
  body: ({ prompt, outputLen }, asking) => ({
    ...{ prompt, max_tokens: outputLen, ...streamed, ...bestOf(asking), ...eos(asking) },
    ...(asking.logprobs === null ? {} : { logprobs: asking.logprobs }),
  }),
  textOf: ({ text }) => text ?? '',
};

const chat: Face = {
  endpoint: '/v1/chat/completions',
  takesIds: false,
  body: ({ prompt, outputLen }, asking) => ({
    messages: [{ role: 'user', content: prompt }],
    ...{ max_completion_tokens: outputLen, ...streamed, ...eos(asking) },
    ...(asking.logprobs === null ? {} : { logprobs: true, top_logprobs: asking.logprobs }),
  }),
  textOf: ({ delta }) => delta?.content ?? '',
};

/** What vLLM's servers take besides; greedy answers without the penalties that a model may recommend. */
const withExtras = (face: Face): Face => ({
  ...face,
  body: (request, asking) => ({ ...face.body(request, asking), ignore_eos: asking.ignoreEos, repetition_penalty: 1 }),
});

const backend = (name: string, face: Face, doc: string, port: number): Backend => ({
  name,
  doc,
  port,
  endpoint: face.endpoint,
  takesIds: face.takesIds,
  open: (address, asking) => openServer(face, address, asking),
});

/** The port that vLLM and ATOM listen on. */
const usualPort = 8000;

export const openaiBackends: readonly Backend[] = [
  backend('openai', completions, 'completions of any OpenAI-like server, inferd too', usualPort),
  backend('openai-chat', chat, 'chat completions of any OpenAI-like server, inferd too', usualPort),
  ...['vllm', 'sglang', 'lmdeploy', 'scalellm'].map((name) =>
    backend(name, withExtras(completions), `completions as ${name} takes them`, usualPort),
  ),
];

async function openServer(face: Face, { base, endpoint, headers, apiKey }: Address, asking: Asking): Promise<BenchServer> {
  const url = base ?? `http://127.0.0.1:${usualPort}`;
  const http = new HttpCaller(url, { ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }), ...headers });
  try {
    const model = await askModel(http, url, asking.model);
    const path = endpoint ?? face.endpoint;
    return {
      url: `${url}${path}`,
      model,
      tokenizer: await askTokenizer(http, model.name),
      generate: async (request, on, signal) => {
        const body = { model: model.name, ...face.body(request, asking) };
        return readAnswer(await http.send(path, body, signal), face, on);
      },
      startProfile: async () => void (await http.send('/start_profile', {})).resume(),
      stopProfile: () => profileOf(http),
      close: async () => http.close(),
    };
  } catch (error) {
    http.close();
    throw error;
  }
}

interface ModelRow {
  readonly id?: unknown;
  readonly vocab_size?: unknown;
}

/** The model that was asked for, or the first that is served. @throws CliError when nobody answers, or it is not known what to ask */
async function askModel(http: HttpCaller, url: string, asked: string | null): Promise<ServerModel> {
  let rows: readonly ModelRow[] = [];
  try {
    const { data } = (await http.json('/v1/models')) as { data?: unknown };
    if (Array.isArray(data)) rows = data as readonly ModelRow[];
  } catch (error) {
    // A server without that list can be asked for what --model says.
    if (!(error instanceof HttpError || error instanceof SyntaxError)) throw unreachable(url, error);
    if (error instanceof HttpError && (error.status === 401 || error.status === 403))
      throw new CliError(`The server at ${url} refused us (${error.message}); put its key into OPENAI_API_KEY`, EXIT.unavailable, error);
  }
  const row = asked === null ? rows[0] : rows.find((r) => r.id === asked);
  const name = asked ?? row?.id;
  if (typeof name !== 'string') throw new CliError(`The server at ${url} does not say what it serves; give --model`, EXIT.usage);
  return { name, vocabSize: typeof row?.vocab_size === 'number' ? row.vocab_size : null };
}

function unreachable(url: string, error: unknown): CliError {
  const { code, message } = error as NodeJS.ErrnoException;
  return new CliError(
    `No server answers at ${url} (${code ?? message}); start one, or say where it is with --base-url`,
    EXIT.unavailable,
    error,
  );
}

/** vLLM's /tokenize and /detokenize; null where one of them is not there. */
async function askTokenizer(http: HttpCaller, model: string): Promise<Tokenizer | null> {
  const tokenizer: Tokenizer = {
    encode: async (text) => {
      const { tokens } = (await http.json('/tokenize', { model, prompt: text, add_special_tokens: false })) as { tokens?: unknown };
      if (!Array.isArray(tokens)) throw new Error('/tokenize answered without tokens');
      return tokens as readonly number[];
    },
    decode: async (ids) => {
      const { prompt } = (await http.json('/detokenize', { model, tokens: ids })) as { prompt?: unknown };
      if (typeof prompt !== 'string') throw new Error('/detokenize answered without a text');
      return prompt;
    },
  };
  try {
    await tokenizer.decode(await tokenizer.encode('a'));
    return tokenizer;
  } catch {
    return null;
  }
}

/** vLLM's profiler answers with nothing. */
async function profileOf(http: HttpCaller): Promise<unknown> {
  try {
    return await http.json('/stop_profile', {});
  } catch (error) {
    if (error instanceof SyntaxError) return {};
    throw error;
  }
}

function readAnswer(response: IncomingMessage, face: Face, on: (piece: Piece) => void): Promise<TokenUsage> {
  return new Promise((resolve, reject) => {
    let usage: TokenUsage = { prompt: null, completion: null };
    let atMs = 0;
    let chunks = 0;
    let whole = false;
    const fail = (error: Error): void => {
      reject(error);
      response.destroy();
    };
    const read = (data: string): void => {
      if (data.trim() === '[DONE]') {
        whole = true;
        return;
      }
      const chunk = JSON.parse(data) as Chunk;
      const [choice] = chunk.choices ?? [];
      if (choice !== undefined) {
        chunks++;
        on({ atMs, text: face.textOf(choice) });
        if (typeof choice.finish_reason === 'string') whole = true;
      } else if ('error' in chunk) throw new Error(messageOf(chunk) ?? 'The server sent an error without a message');
      if (chunk.usage) usage = { prompt: chunk.usage.prompt_tokens ?? null, completion: chunk.usage.completion_tokens ?? null };
    };
    const sse = new SseReader(read);
    response.on('data', (bytes: Buffer) => {
      atMs = performance.now(); // one time for all chunks that came together
      try {
        sse.push(bytes);
      } catch (error) {
        fail(error instanceof SyntaxError ? new Error('The server sent a chunk that is not JSON') : (error as Error));
      }
    });
    const cut = (why: string): void => fail(new Error(`The answer was cut after ${chunks} chunks (${why})`));
    response.on('end', () => {
      if (!whole) cut('neither [DONE] nor a finish_reason');
      else if (chunks === 0) fail(new Error('The answer had no chunk'));
      else resolve(usage);
    });
    response.on('error', (error: NodeJS.ErrnoException) => cut(error.code ?? error.message));
  });
}
