/**
 * inferd over WebSocket, with the client that programs use. A connection holds several requests; they are spread over a few connections,
 * as many programs would be, and a request goes to the one that has the fewest.
 */

import { readDaemonFile } from '../../../../../config/paths.js';
import { connect, type InferdClient } from '../../../../../rpc/client/node.js';
import type { CompletionParams } from '../../../../../rpc/client/types.js';
import { explain } from '../../../failure.js';
import { whenLoaded } from '../../../reach.js';
import type { BenchRequest, Piece, TokenUsage } from '../request.js';
import type { Address, Asking, Backend, BenchServer, Generate } from './backend.js';

/** How the daemon's log calls us. */
const clientName = 'inferd-bench';
/** Within what a daemon takes by default (server.max_connections), with room for others. */
const mostConnections = 64;

export const inferdWsBackends: readonly Backend[] = [
  {
    name: 'inferd-ws',
    doc: 'completions of inferd over WebSocket',
    endpoint: null,
    port: null,
    takesIds: true,
    open: (address, asking, { env }) => openDaemon(completion, address, asking, env),
  },
  {
    name: 'inferd-ws-chat',
    doc: 'chat completions of inferd over WebSocket',
    endpoint: null,
    port: null,
    takesIds: false,
    open: (address, asking, { env }) => openDaemon(chat, address, asking, env),
  },
];

type Ask = (client: InferdClient, request: BenchRequest, asking: Asking, signal: AbortSignal) => Promise<AsyncIterable<AnyChunk>>;

interface AnyChunk {
  readonly choices: readonly { readonly text?: string; readonly delta?: { readonly content?: string | undefined } }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number } | null;
}

const fixed = ({ model, ignoreEos }: Asking) => ({
  ...(model === null ? {} : { model }),
  temperature: 0,
  repetition_penalty: 1,
  ignore_eos: ignoreEos,
  stream: true as const,
});

const completion: Ask = (client, { prompt, outputLen }, asking, signal) => {
  const best = asking.bestOf > 1 ? { best_of: asking.bestOf } : {};
  const body = { ...fixed(asking), ...best, prompt: prompt as CompletionParams['prompt'], max_tokens: outputLen };
  return client.completions.create({ ...body, logprobs: asking.logprobs }, { signal });
};

const chat: Ask = (client, { prompt, outputLen }, asking, signal) => {
  const logprobs = asking.logprobs === null ? {} : { logprobs: true, top_logprobs: asking.logprobs };
  const messages = [{ role: 'user' as const, content: String(prompt) }];
  return client.chat.completions.create({ ...fixed(asking), ...logprobs, messages, max_completion_tokens: outputLen }, { signal });
};

async function openDaemon(ask: Ask, { base, apiKey, connections }: Address, asking: Asking, env: NodeJS.ProcessEnv): Promise<BenchServer> {
  const target = {
    name: clientName,
    env,
    ...(base === null ? {} : { url: base }),
    ...(apiKey === null || base === null ? {} : { token: apiKey }),
  };
  const open = (): Promise<InferdClient> => connect(target);
  const clients: InferdClient[] = [];
  try {
    const first = await open();
    clients.push(first);
    while (clients.length < Math.min(connections, mostConnections)) clients.push(await open());
    await whenLoaded(() => first.call('tokenize', { text: 'a' }));
    const { model } = first.server;
    return {
      url: base ?? readDaemonFile(env)?.address ?? 'the running daemon',
      model: { name: asking.model ?? model.id, vocabSize: model.vocab_size },
      tokenizer: {
        encode: async (text) => (await first.call('tokenize', { text, add_special_tokens: false })).ids,
        decode: async (ids) => (await first.call('detokenize', { ids, skip_special_tokens: false })).text,
      },
      generate: spread(clients, ask, asking),
      startProfile: async () => void (await first.call('profile.start', {})),
      stopProfile: () => first.call('profile.stop', {}),
      close: async () => void (await Promise.all(clients.map((client) => client.close()))),
    };
  } catch (error) {
    await Promise.all(clients.map((client) => client.close()));
    throw explain(error);
  }
}

function spread(clients: readonly InferdClient[], ask: Ask, asking: Asking): Generate {
  const busy = clients.map(() => 0);
  return async (request, on, signal) => {
    const place = busy.indexOf(Math.min(...busy));
    busy[place] = (busy[place] ?? 0) + 1;
    try {
      return await read(await ask(clients[place] as InferdClient, request, asking, signal), on); // proof: place is an index of busy
    } finally {
      busy[place] = (busy[place] ?? 1) - 1;
    }
  };
}

async function read(stream: AsyncIterable<AnyChunk>, on: (piece: Piece) => void): Promise<TokenUsage> {
  let usage: TokenUsage = { prompt: null, completion: null };
  for await (const chunk of stream) {
    const [choice] = chunk.choices;
    if (choice !== undefined) on({ atMs: performance.now(), text: choice.text ?? choice.delta?.content ?? '' });
    if (chunk.usage) usage = { prompt: chunk.usage.prompt_tokens, completion: chunk.usage.completion_tokens };
  }
  return usage;
}
