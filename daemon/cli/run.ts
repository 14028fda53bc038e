/**
 * `inferd run PROMPT...`: one answer, streamed to stdout. Uses the running daemon, else an engine in this process.
 * Ctrl-C cancels the request and exits with 130; a reader that goes away ends it quietly (main.ts).
 */
import { once } from 'node:events';
import { explain } from './failure.js';
import { type ChatMessage, promptOptions, readInput, requestBody, streamAnswer } from './prompt.js';
import { type ReachedDaemon, reachDaemon, whenLoaded } from './reach.js';
import { CliError, configOptions, EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

export const run: Verb = {
  name: 'run',
  summary: 'ask one question and print the answer',
  details:
    'Uses the running daemon if there is one; else, and always with --config or --set, starts an engine in this process and stops it ' +
    'again. The answer is greedy (temperature 0) unless --temperature says otherwise. With "-" the prompt is read from stdin.',
  args: [{ name: '<prompt...>', doc: 'the question, or "-" to read it from stdin' }],
  options: [...promptOptions, ...configOptions, { ...jsonOption, doc: 'print the whole OpenAI chat.completion object' }],
  examples: [
    'inferd run "What is 123 + 456?"',
    'inferd run --system "Answer in capitals." Which city is the capital of Japan',
    'cat letter.txt | inferd run --max-tokens 200 -',
    'inferd run --json "Who are you?" | jq .usage',
  ],
  run: runPrompt,
};

async function runPrompt(input: VerbInput): Promise<ExitCode> {
  const { io, args } = input;
  const text = args.length === 1 && args[0] === '-' ? await readInput(io) : args.join(' ');
  if (text.trim() === '') throw new CliError('The prompt is empty; give some text, for example: inferd run "Who are you?"', EXIT.usage);
  const system = input.text('system');
  const messages: ChatMessage[] = [
    ...(system === undefined ? [] : [{ role: 'system', content: system } as const]),
    { role: 'user', content: text },
  ];

  const cancel = new AbortController();
  let reached: ReachedDaemon | null = null;
  const interrupt = (): void => {
    // While the engine starts there is nothing to cancel, and a second Ctrl-C does not wait for anything.
    if (reached === null || cancel.signal.aborted) process.exit(EXIT.interrupted);
    cancel.abort();
  };
  process.on('SIGINT', interrupt);
  try {
    reached = await reachDaemon(input);
    await answer(reached, input, messages, cancel.signal);
    return EXIT.ok;
  } catch (error) {
    if (cancel.signal.aborted) return EXIT.interrupted;
    throw explain(error);
  } finally {
    await reached?.close();
    process.off('SIGINT', interrupt);
  }
}

async function answer(reached: ReachedDaemon, input: VerbInput, messages: readonly ChatMessage[], signal: AbortSignal): Promise<void> {
  const { io } = input;
  const body = requestBody(input, messages);
  if (input.flag('json')) {
    const { client } = reached;
    printJson(io, await whenLoaded(() => client.chat.completions.create({ ...body, stream: false }, { signal })));
    return;
  }
  let last = '';
  const write = async (text: string): Promise<void> => {
    last = text;
    if (!io.stdout.write(text)) await once(io.stdout, 'drain');
  };
  try {
    await streamAnswer(reached, body, write, signal);
  } finally {
    // After a Ctrl-C the terminal shows ^C, also where no answer has begun.
    const open = last === '' ? signal.aborted && io.stdout.isTTY === true : !last.endsWith('\n');
    if (open) io.stdout.write('\n');
  }
}
