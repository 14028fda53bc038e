/**
 * `inferd chat`: a conversation in the terminal. Each answer streams; Ctrl-C cancels it, and at the prompt a second Ctrl-C leaves. Also
 * works over a pipe, one question a line, without prompts.
 *
 * Lines typed during an answer wait in readline's queue. The conversation is kept in this process only and never written to disk; it goes
 * on when the daemon is restarted.
 */
import { createInterface, type Interface } from 'node:readline';
import { errorTable } from '../../actors/messages/errors.js';
import { explain, rpcCode } from './failure.js';
import { type ChatMessage, promptOptions, requestBody, streamAnswer } from './prompt.js';
import { type ReachedDaemon, reachDaemon, renewed } from './reach.js';
import { statsText } from './stats.js';
import { CliError, configOptions, EXIT, type ExitCode, type Verb, type VerbInput } from './verb.js';

export const chat: Verb = {
  name: 'chat',
  summary: 'talk to the model in the terminal',
  details:
    'Uses the running daemon if there is one, else (and always with --config or --set) an engine in this process. /help lists the commands.',
  options: [...promptOptions, ...configOptions],
  examples: ['inferd chat', 'inferd chat --system "You are terse." --temperature 0.7', 'printf "Who are you?\\n" | inferd chat'],
  run,
};

const helpText = `/help           this list
/clear          forget the conversation, keep the system message
/system [TEXT]  set the system message; without TEXT show it
/stats          counters of the engine
/quit           leave (also Ctrl-D, or Ctrl-C twice)
Ctrl-C          cancel the answer
`;

const historyLines = 200;

async function run(input: VerbInput): Promise<ExitCode> {
  const interruptStart = (): void => process.exit(EXIT.interrupted);
  process.on('SIGINT', interruptStart);
  let reached: ReachedDaemon;
  try {
    reached = await reachDaemon(input);
  } finally {
    process.off('SIGINT', interruptStart);
  }
  const conversation = new Conversation(reached, input);
  try {
    return await conversation.run();
  } finally {
    await conversation.close();
  }
}

class Conversation {
  #reached: ReachedDaemon;
  readonly #input: VerbInput;
  readonly #terminal: boolean;
  readonly #lines: Interface;
  #system: string | undefined;
  #messages: ChatMessage[] = [];
  /** The answer that is streaming now. */
  #answering: AbortController | null = null;
  #leaveNext = false;
  #interrupted = false;
  #worst: ExitCode = EXIT.ok;

  constructor(reached: ReachedDaemon, input: VerbInput) {
    this.#reached = reached;
    this.#input = input;
    this.#system = input.text('system');
    const { stdin, stdout } = input.io;
    this.#terminal = stdin.isTTY === true && stdout.isTTY === true;
    this.#lines = createInterface({ input: stdin, output: stdout, terminal: this.#terminal, prompt: '> ', historySize: historyLines });
  }

  async run(): Promise<ExitCode> {
    const interrupt = (): void => this.#interrupt();
    // In a terminal readline sees the key; over a pipe the process gets the signal.
    this.#lines.on('SIGINT', interrupt);
    process.on('SIGINT', interrupt);
    try {
      const partner = this.#reached.where === 'daemon' ? `the daemon at ${this.#reached.address}` : 'an engine in this process';
      if (this.#terminal) this.#print(`Talking to ${partner}; /help lists the commands.\n`);
      this.#prompt();
      for await (const line of this.#lines) {
        this.#leaveNext = false;
        if (!(await this.#line(line.trim()))) break;
        this.#prompt();
      }
    } finally {
      process.off('SIGINT', interrupt);
      this.#lines.close();
    }
    return this.#interrupted ? EXIT.interrupted : this.#worst;
  }

  close(): Promise<void> {
    return this.#reached.close();
  }

  /** Handles one line; false to leave. */
  async #line(line: string): Promise<boolean> {
    if (line === '') return true;
    const [, command, rest = ''] = /^\/(\w*)\s*(.*)$/s.exec(line) ?? [];
    switch (command) {
      case undefined:
        await this.#ask(line);
        return true;
      case 'quit':
      case 'exit':
        return false;
      case 'help':
        this.#print(helpText);
        return true;
      case 'clear':
        this.#messages = [];
        this.#print('The conversation is forgotten.\n');
        return true;
      case 'system':
        if (rest !== '') this.#system = rest;
        this.#print(this.#system === undefined ? 'There is no system message.\n' : `System message: ${this.#system}\n`);
        return true;
      case 'stats':
        await this.#stats();
        return true;
      default:
        this.#print(`There is no command /${command}; /help lists them.\n`);
        return true;
    }
  }

  async #ask(question: string): Promise<void> {
    const cancel = new AbortController();
    this.#answering = cancel;
    const system: ChatMessage[] = this.#system === undefined ? [] : [{ role: 'system', content: this.#system }];
    const asked: ChatMessage[] = [...this.#messages, { role: 'user', content: question }];
    let text = '';
    try {
      await this.#reconnect();
      await streamAnswer(
        this.#reached,
        requestBody(this.#input, [...system, ...asked]),
        (piece) => {
          text += piece;
          this.#print(piece);
        },
        cancel.signal,
      );
      this.#print('\n');
    } catch (error) {
      if (cancel.signal.aborted) this.#print('\n(cancelled)\n');
      else {
        if (text !== '') this.#print('\n');
        this.#fail(error);
      }
    } finally {
      this.#answering = null;
    }
    // What was shown was said, also when it was cut off; a question without an answer is taken back.
    if (text !== '') this.#messages = [...asked, { role: 'assistant', content: text }];
  }

  /** A daemon that was restarted is found again; it needs nothing of us, since each question brings the whole conversation. */
  async #reconnect(): Promise<void> {
    const reached = await renewed(this.#reached, this.#input.io);
    if (reached === this.#reached) return;
    this.#reached = reached;
    if (this.#terminal) this.#print(`(connected again, to the daemon at ${reached.address})\n`);
  }

  async #stats(): Promise<void> {
    try {
      await this.#reconnect();
      this.#print(statsText(await this.#reached.client.call('stats.get', {})));
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    const known = explain(error);
    const tooLong = rpcCode(error) === errorTable.context_length_exceeded.code;
    this.#input.io.stderr.write(
      `inferd: ${tooLong ? 'The conversation no longer fits the context; /clear starts a new one' : known.message}\n`,
    );
    if (this.#worst === EXIT.ok) this.#worst = known instanceof CliError ? known.exitCode : EXIT.internal;
  }

  #interrupt(): void {
    if (this.#answering !== null) {
      if (!this.#answering.signal.aborted) this.#answering.abort();
      return;
    }
    if (this.#leaveNext || !this.#terminal) {
      this.#interrupted = !this.#terminal;
      this.#print('\n');
      this.#lines.close();
      return;
    }
    this.#leaveNext = true;
    this.#print('\n(Ctrl-C again to leave)\n');
    this.#prompt();
  }

  #prompt(): void {
    if (this.#terminal) this.#lines.prompt();
  }

  #print(text: string): void {
    this.#input.io.stdout.write(text);
  }
}
