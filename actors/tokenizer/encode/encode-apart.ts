/**
 * Encodes text in a process of its own: what the library might never be done with, or die of (library.ts). There it can be killed, and
 * takes nobody with it. Used by vocab.ts, in the tokenizer thread; the other side is encode-apart-process.ts.
 *
 * A process takes one text at a time. It starts with the first text, ends when there was none for a while, and is killed when nobody wants
 * the ids any more or at a deadline. Whatever way it ends, the text at hand has failed and the next one gets a new process. It does not
 * outlive the daemon: when its channel closes, it kills itself. Where processors are short, others go first.
 * Bounded by the number of requests that the front lets in.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { InferdError } from '../../messages/errors.js';
import { letOthersFirst } from '../../runtime/cpu-time.js';

/** To the process, first: what to encode with. */
export interface ApartTokenizer {
  /** The model whose tokenizer it is: a folder, or a GGUF file. */
  readonly model: string;
  /** SHA-256 of the file that this thread has read, hexadecimal. */
  readonly digest: string;
  readonly nonce: string;
  readonly keepNormalizer: boolean;
}

/** To the process: one text to encode. */
export interface ApartText {
  readonly text: string;
}

/** From the process: it is ready, or a part of the ids. */
export type FromApart = 'ready' | { readonly ids: Int32Array; readonly last: boolean };

/** A text of 4 MiB takes 10 s of an idle machine; before the front gives up a call. */
const ENCODE_MS = 25_000;
/** For reading a vocabulary, which takes some seconds at most. */
const START_MS = 60_000;
/** A process that has had nothing to do for so long ends. */
const IDLE_MS = 60_000;
/** How often a waiting caller is asked whether it still wants the ids. */
const ASK_MS = 100;
const HEAP_MB = 1024;

/** Processes when every text comes here: while one is in a text that does not end, or is being replaced, the other goes on. */
const LANES = 2;

export class EncodeApart {
  readonly #lanes: readonly Lane[];

  /**
   * @param always every text comes here: the processes are started at once, and again when they die.
   * @param encodeMs what one text may take.
   */
  constructor(tokenizer: ApartTokenizer, always: boolean, encodeMs = ENCODE_MS) {
    this.#lanes = Array.from({ length: always ? LANES : 1 }, () => new Lane(tokenizer, always, encodeMs));
  }

  /**
   * The ids of a well-formed text, in parts.
   * @param wanted asked now and then.
   * @throws InferdError cancelled when they are not wanted; invalid_params when the library cannot encode the text, or not in time;
   * engine_failure when there can be no process
   */
  encode(text: string, wanted: () => boolean): Promise<readonly Int32Array[]> {
    return this.#lanes.reduce((best, lane) => (lane.load < best.load ? lane : best)).encode(text, wanted);
  }

  /** Ends the processes: the texts at hand fail. */
  close(): void {
    for (const lane of this.#lanes) lane.close();
  }
}

/** One text at a time, first come, first served. */
class Lane {
  readonly #tokenizer: ApartTokenizer;
  readonly #encodeMs: number;
  /** There is always a process. */
  readonly #stays: boolean;
  #process: ApartProcess | null = null;
  #idle: NodeJS.Timeout | undefined;
  #pending = 0;
  /** Settles when all texts so far are encoded. */
  #done: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(tokenizer: ApartTokenizer, stays: boolean, encodeMs: number) {
    this.#tokenizer = tokenizer;
    this.#stays = stays;
    this.#encodeMs = encodeMs;
    if (stays) this.#started();
  }

  /** How long a text may have to wait here, to be compared. */
  get load(): number {
    return 2 * this.#pending + (this.#process?.isReady === true ? 0 : 1);
  }

  async encode(text: string, wanted: () => boolean): Promise<readonly Int32Array[]> {
    const before = this.#done;
    let done = (): void => {};
    this.#done = new Promise((resolve) => {
      done = resolve;
    });
    this.#pending++;
    try {
      await before;
      clearTimeout(this.#idle);
      return await this.#encode(text, wanted);
    } finally {
      if (!this.#stays) this.#idle = setTimeout(() => this.#process?.kill(), IDLE_MS).unref();
      else if (!this.#closed) this.#started();
      this.#pending--;
      done();
    }
  }

  close(): void {
    this.#closed = true;
    this.#process?.kill();
  }

  async #encode(text: string, wanted: () => boolean): Promise<readonly Int32Array[]> {
    if (this.#closed || !wanted()) throw new InferdError('cancelled');
    const encoder = this.#started();
    const asking = setInterval(() => wanted() || encoder.kill(), ASK_MS);
    let limit = setTimeout(() => encoder.kill(), START_MS);
    let ready = false;
    try {
      await encoder.ready;
      ready = true;
      clearTimeout(limit);
      limit = setTimeout(() => encoder.kill(), this.#encodeMs);
      return await encoder.encode(text);
    } catch {
      if (this.#closed || !wanted()) throw new InferdError('cancelled');
      if (ready) throw new InferdError('invalid_params', 'The tokenizer of this model cannot encode this text');
      throw new InferdError('engine_failure', 'The process that encodes such texts could not be started');
    } finally {
      clearInterval(asking);
      clearTimeout(limit);
    }
  }

  #started(): ApartProcess {
    if (this.#process === null || this.#process.over) this.#process = new ApartProcess(this.#tokenizer);
    return this.#process;
  }
}

/** One process, from its start to its end. */
class ApartProcess {
  /** Settles when it can encode. */
  readonly ready: Promise<void>;
  /** It has ended, or will: it takes nothing more. */
  over = false;
  #begun = false;
  readonly #child: ChildProcess;
  readonly #parts: Int32Array[] = [];
  #waiting: { readonly resolve: () => void; readonly reject: (why: Error) => void } | null = null;

  constructor(tokenizer: ApartTokenizer) {
    this.#child = fork(new URL('./encode-apart-process.js', import.meta.url), {
      serialization: 'advanced',
      // What the library says when it panics is for nobody, and no other flag of ours is for this process.
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      execArgv: [`--max-old-space-size=${HEAP_MB}`],
    });
    this.#child.on('message', (message) => this.#received(message as FromApart)); // proof: encode-apart-process.ts sends nothing else
    this.#child.on('error', () => this.#ended());
    this.#child.on('exit', () => this.#ended());
    if (this.#child.pid !== undefined) letOthersFirst(this.#child.pid);
    this.ready = this.#ask(tokenizer);
    this.ready.catch(() => {}); // `encode` of EncodeApart looks, if anybody does
    // Whoever waits has timers that keep the loop going.
    this.#child.unref();
    this.#child.channel?.unref();
  }

  get isReady(): boolean {
    return this.#begun && !this.over;
  }

  /** When it is ready, and one text at a time. @throws Error when the process ended */
  async encode(text: string): Promise<readonly Int32Array[]> {
    await this.#ask({ text });
    return this.#parts.splice(0);
  }

  kill(): void {
    this.over = true;
    this.#child.kill('SIGKILL');
  }

  #ask(message: ApartTokenizer | ApartText): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#child.send(message, (error) => error && this.#ended());
    });
  }

  #received(message: FromApart): void {
    if (message === 'ready') this.#begun = true;
    else this.#parts.push(message.ids);
    if (message === 'ready' || message.last) this.#waiting?.resolve();
  }

  #ended(): void {
    this.over = true;
    this.#waiting?.reject(new Error('the process has ended'));
  }
}
