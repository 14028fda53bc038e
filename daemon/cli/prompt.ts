/**
 * Builds the request of the commands that ask the model something, and streams its answer to an output. Called by run and chat.
 */
import type { ChatCompletionParams } from '../../rpc/client/types.js';
import type { ReachedDaemon } from './reach.js';
import { whenLoaded } from './reach.js';
import { CliError, EXIT, type Io, type VerbInput, type VerbOption } from './verb.js';

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** The body of a request, less how its answer comes. */
export type RequestBody = ChatCompletionParams;

/** Options of a request on the command line. */
export const promptOptions: readonly VerbOption[] = [
  { flags: '--model <name>', doc: 'model to ask; the served one when not given', kind: 'text' },
  { flags: '--system <text>', doc: 'system message', kind: 'text' },
  { flags: '--max-tokens <n>', doc: 'longest answer, tokens', kind: 'int', range: [1, 2 ** 24] },
  { flags: '--temperature <t>', doc: 'randomness; 0, the default here, always takes the best token', kind: 'float', range: [0, 2] },
];

/** Most characters of a prompt from stdin: what fits one message of the protocol. */
const maxInput = 4 * 2 ** 20;

/** The body of a chat completion. Greedy unless the user asks otherwise, so that the same command gives the same answer. */
export function requestBody(input: VerbInput, messages: readonly ChatMessage[]): RequestBody {
  const [model, maxTokens] = [input.text('model'), input.number('max-tokens')];
  return {
    messages: messages.map(({ role, content }) => ({ role, content })),
    temperature: input.number('temperature') ?? 0,
    ...(model === undefined ? {} : { model }),
    ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
  };
}

/** The whole of stdin as text. @throws CliError when it is empty or too long. */
export async function readInput(io: Io): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of io.stdin) {
    const bytes = typeof part === 'string' ? Buffer.from(part) : (part as Buffer);
    length += bytes.length;
    if (length > maxInput) throw new CliError(`The prompt on stdin is longer than ${maxInput} bytes; shorten it`, EXIT.badData);
    parts.push(bytes);
  }
  const text = Buffer.concat(parts).toString('utf8').replace(/\n$/, '');
  if (text.trim() === '') throw new CliError('The prompt on stdin is empty; pipe some text into it', EXIT.badData);
  return text;
}

/** Asks, hands each piece of text to `write` as it comes, and returns the whole text. */
export async function streamAnswer(
  reached: ReachedDaemon,
  body: RequestBody,
  write: (text: string) => void | Promise<void>,
  signal: AbortSignal,
): Promise<string> {
  let text = '';
  await whenLoaded(async () => {
    const stream = await reached.client.chat.completions.create({ ...body, stream: true }, { signal });
    for await (const chunk of stream) {
      for (const choice of chunk.choices) {
        const piece = choice.delta.content ?? '';
        if (piece === '') continue;
        text += piece;
        await write(piece);
      }
    }
  });
  return text;
}
