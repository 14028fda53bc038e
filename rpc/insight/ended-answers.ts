/**
 * The last answers that ended, whoever asked for them: what requests.list and requests.get still know of them. A bounded ring; the
 * timelines themselves are kept by the scheduler of their model.
 */
import type { RequestId } from '../../actors/messages/ids.js';
import type { Session } from '../session.js';

export interface EndedAnswer {
  /** Id of the answer, as clients see it. */
  readonly answerId: string;
  readonly model: string;
  readonly state: 'finished' | 'cancelled' | 'failed';
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** From the call to its end. */
  readonly durationMs: number;
  /** Milliseconds since the epoch. */
  readonly endedAt: number;
  /** Of the engine, one a prompt, the first ones. */
  readonly ids: readonly RequestId[];
  /** Whose call it was; `null`: it came over HTTP. Does not keep the session alive. */
  readonly session: WeakRef<Session> | null;
}

/** Prompts of one answer whose timelines can be asked for. */
export const maxPromptsTold = 64;

export class EndedAnswers {
  readonly #limit: number;
  /** Oldest first. */
  readonly #answers = new Map<string, EndedAnswer>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(answer: EndedAnswer): void {
    if (this.#limit === 0) return;
    for (const oldest of this.#answers.keys()) {
      if (this.#answers.size < this.#limit) break;
      this.#answers.delete(oldest);
    }
    this.#answers.set(answer.answerId, answer);
  }

  find(answerId: string): EndedAnswer | undefined {
    return this.#answers.get(answerId);
  }

  /** Newest first. */
  list(): readonly EndedAnswer[] {
    return [...this.#answers.values()].reverse();
  }
}
