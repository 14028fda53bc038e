/**
 * Collects what the scheduler has to tell: tokens by tokenizer, refusals, notices. Runs in the scheduler thread; the actor takes the
 * batch once a turn and sends one message per tokenizer.
 */
import type { Failure } from '../messages/errors.js';
import type { RequestId } from '../messages/ids.js';
import type { Notice, Refused, Started, TokenLogprob, Tokens } from '../messages/requests.js';
import type { Sequence } from './request.js';

/** Everything since the last `take`. */
export interface Outputs {
  /** By owner: the index of the tokenizer that admitted the requests. */
  readonly tokens: Map<number, Tokens>;
  readonly refused: { readonly owner: number; readonly message: Refused }[];
  readonly notices: Notice[];
}

type PromptLogprob = TokenLogprob & { readonly position: number };

/** A Tokens message being built; the parallel columns grow together. */
interface TokensDraft {
  readonly k: 'tokens';
  readonly ids: RequestId[];
  readonly indices: number[];
  readonly tokens: number[];
  readonly finishes: number[];
  logprobs?: (TokenLogprob | null)[];
  cumulative?: number[];
  prompt?: { readonly id: RequestId; readonly entries: PromptLogprob[] }[];
  started?: Started[];
}

export class Events {
  private tokens = new Map<number, TokensDraft>();
  private refused: { owner: number; message: Refused }[] = [];
  private notices: Notice[] = [];
  /** A request got its first token since the last `take`. */
  hasFirst = false;

  /** Adds a token that was sampled for `sequence`, whose sum of logprobs includes it. `detail` is null unless the client asked. */
  token(sequence: Sequence, token: number, finish: number, detail: TokenLogprob | null): void {
    const { request } = sequence;
    const draft = this.draft(request.owner);
    const at = draft.ids.length;
    draft.ids.push(request.id);
    draft.indices.push(sequence.index);
    draft.tokens.push(token);
    draft.finishes.push(finish);
    if (detail !== null && draft.logprobs === undefined) draft.logprobs = new Array<TokenLogprob | null>(at).fill(null);
    draft.logprobs?.push(detail);
    if (request.sumsLogprobs && draft.cumulative === undefined) draft.cumulative = new Array<number>(at).fill(0);
    draft.cumulative?.push(sequence.cumulativeLogprob);
  }

  started(owner: number, started: Started): void {
    const draft = this.draft(owner);
    draft.started ??= [];
    draft.started.push(started);
    this.hasFirst = true;
  }

  promptLogprob(owner: number, id: RequestId, entry: PromptLogprob): void {
    const draft = this.draft(owner);
    draft.prompt ??= [];
    const last = draft.prompt.at(-1);
    if (last?.id === id) last.entries.push(entry);
    else draft.prompt.push({ id, entries: [entry] });
  }

  refuse(owner: number, id: RequestId, failure: Failure): void {
    this.refused.push({ owner, message: { k: 'refused', id, failure } });
  }

  notice(notice: Notice): void {
    this.notices.push(notice);
  }

  /** Forgets what was collected for a tokenizer that is gone. */
  dropOwner(owner: number): void {
    this.tokens.delete(owner);
    this.refused = this.refused.filter((r) => r.owner !== owner);
  }

  /** Hands over everything and begins anew. */
  take(): Outputs {
    const outputs = { tokens: this.tokens, refused: this.refused, notices: this.notices };
    this.tokens = new Map();
    this.refused = [];
    this.notices = [];
    this.hasFirst = false;
    return outputs;
  }

  private draft(owner: number): TokensDraft {
    let draft = this.tokens.get(owner);
    if (draft === undefined) {
      draft = { k: 'tokens', ids: [], indices: [], tokens: [], finishes: [] };
      this.tokens.set(owner, draft);
    }
    return draft;
  }
}
