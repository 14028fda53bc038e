/**
 * Writes the grammars of answers in a thread of its own: a schema of a few lines can take as long as the limits let it, and the tokenizer
 * has the answers of others to go on with. The other side is grammar-texts-thread.ts.
 */
import type { AskedConstraint } from '../../messages/constraint.js';
import { InferdError, invalidParams } from '../../messages/errors.js';
import type { ParserChoice } from '../answer/answers.js';
import type { ToolsOffered } from '../answer/tool-constraint.js';
import { SideThread } from '../work/side-thread.js';
import type { Asker } from '../work/waiting-line.js';
import type { AnswerGrammar } from './answer-grammar.js';
import type { GrammarLimits } from './grammar-limits.js';

/** What the thread is told of a chat prompt: functions do not cross threads, so that it finds the formats by itself. */
export interface ChatPart {
  readonly tools: ToolsOffered;
  readonly template: string;
  readonly parsers: ParserChoice;
  /** The prompt ends inside the reasoning. */
  readonly opened: boolean;
}

/** To the thread. */
export interface GrammarJob {
  readonly asked: AskedConstraint | null;
  readonly chat: ChatPart | null;
}

/** From the thread. `refused`: a sentence, and the path in the parameter that asks. `failed`: by a fault of ours. */
export type GrammarDone =
  | { readonly grammar: AnswerGrammar | null }
  | { readonly refused: string; readonly path: readonly (string | number)[] }
  | { readonly failed: true };

export class GrammarTexts {
  readonly #thread: SideThread<GrammarJob, GrammarDone>;

  constructor(limits: GrammarLimits) {
    this.#thread = new SideThread(new URL('./grammar-texts-thread.js', import.meta.url), limits);
  }

  /** Null when every answer will do. @throws (rejects) InferdError invalid_params for what cannot be enforced; cancelled */
  async write(job: GrammarJob, asker: Asker): Promise<AnswerGrammar | null> {
    const done = await this.#thread.run(job, asker);
    if (done === null) throw refusal(job, 'The constraint needs more memory than there is for it.', []);
    if ('grammar' in done) return done.grammar;
    if ('failed' in done) throw new InferdError('internal');
    throw refusal(job, done.refused, done.path);
  }

  close(): void {
    this.#thread.close();
  }
}

function refusal({ asked }: GrammarJob, message: string, path: readonly (string | number)[]): Error {
  return invalidParams([{ path: pathText(asked?.param ?? 'tools', path), message }]);
}

/** Longest path that an error names: keys of a schema are a client's. */
const LONGEST_PATH = 200;

function pathText(param: string, path: readonly (string | number)[]): string {
  const text = path.reduce<string>((at, part) => (typeof part === 'number' ? `${at}[${part}]` : `${at}.${part}`), param);
  return text.length > LONGEST_PATH ? `${text.slice(0, LONGEST_PATH)}…` : text;
}
