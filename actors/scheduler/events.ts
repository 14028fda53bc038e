/**
 * Collects what the scheduler has to tell: tokens by tokenizer, refusals, notices. Runs in the scheduler thread; the actor takes the
 * batch once a turn and sends one message per tokenizer.
 */
import type { Failure } from '../messages/errors.js';
import type { RequestId } from '../messages/ids.js';
import { LogprobColumn } from '../messages/logprobs.js';
import type { Notice, Pooled, PromptLogprobs, Refused, Started, Tokens } from '../messages/requests.js';
import type { Request, Sequence } from './request.js';

/** Everything since the last `take`. */
export interface Outputs {
  /** By owner: the index of the tokenizer that admitted the requests. */
  readonly tokens: Map<number, Tokens>;
  readonly refused: { readonly owner: number; readonly message: Refused }[];
  readonly notices: Notice[];
}

/** Prompt logprobs being collected. */
interface PromptDraft {
  readonly id: RequestId;
  readonly first: number;
  /** Position of the next token. */
  next: number;
  readonly column: LogprobColumn;
}

/** A Tokens message being built; the parallel columns grow together. */
interface TokensDraft {
  readonly k: 'tokens';
  readonly ids: RequestId[];
  readonly indices: number[];
  readonly tokens: number[];
  readonly finishes: number[];
  logprobs?: Uint8Array;
  logprobWords?: number[];
  cumulative?: number[];
  drafted?: number[];
  prompt?: PromptLogprobs[];
  started?: Started[];
  pooled?: Pooled[];
}

interface Building {
  readonly message: TokensDraft;
  /** Some of its tokens have more than the first four columns. */
  hasMore: boolean;
}

/** What is packed when a message is handed over, by its tokenizer. */
interface Records {
  readonly sampled: LogprobColumn;
  readonly prompts: PromptDraft[];
}

export class Events {
  private tokens = new Map<number, TokensDraft>();
  /** The same by owner, which are few and small numbers: looked up for each token. */
  private buildings: (Building | undefined)[] = [];
  private readonly records = new Map<number, Records>();
  private refused: { owner: number; message: Refused }[] = [];
  private notices: Notice[] = [];
  /** A request got its first token since the last `take`. */
  hasFirst = false;

  /**
   * Adds a token that was sampled for `sequence`, whose sum of logprobs includes it. `record`: its log-probabilities, which are copied;
   * null unless the client asked. `drafted`: as in Tokens.
   */
  token(sequence: Sequence, token: number, finish: number, record: Int32Array | null, drafted = 0): void {
    const { request } = sequence;
    const building = this.building(request.owner);
    const { message } = building;
    message.ids.push(request.id);
    message.indices.push(sequence.index);
    message.tokens.push(token);
    message.finishes.push(finish);
    if (building.hasMore || record !== null || request.sumsLogprobs || drafted !== 0) {
      building.hasMore = true;
      this.addColumns(message, sequence, record, drafted);
    }
  }

  /** What most tokens do not have, of the token added last. */
  private addColumns(message: TokensDraft, { request, cumulativeLogprob }: Sequence, record: Int32Array | null, drafted: number): void {
    const at = message.ids.length - 1;
    if (record !== null) {
      message.logprobWords ??= new Array<number>(at).fill(0);
      this.recordsOf(request.owner).sampled.add(record);
    }
    message.logprobWords?.push(record === null ? 0 : record.length);
    if (request.sumsLogprobs) message.cumulative ??= new Array<number>(at).fill(0);
    message.cumulative?.push(cumulativeLogprob);
    if (drafted !== 0) message.drafted ??= new Array<number>(at).fill(0);
    message.drafted?.push(drafted);
  }

  started(owner: number, started: Started): void {
    const draft = this.draft(owner);
    draft.started ??= [];
    draft.started.push(started);
    this.hasFirst = true;
  }

  /** Adds the answer of a request that ends with it; copies `state`. */
  pooled({ owner, id }: Request, state: Float32Array): void {
    const draft = this.draft(owner);
    draft.pooled ??= [];
    draft.pooled.push({ id, state: new Uint8Array(state.slice().buffer) });
  }

  /** Adds the record of the prompt token at `position`, which is copied. */
  promptLogprob(owner: number, id: RequestId, position: number, record: Int32Array): void {
    this.draft(owner);
    const { prompts } = this.recordsOf(owner);
    let last = prompts.at(-1);
    if (last === undefined || last.id !== id || last.next !== position) {
      last = { id, first: position, next: position, column: new LogprobColumn() };
      prompts.push(last);
    }
    last.column.add(record);
    last.next++;
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
    this.buildings[owner] = undefined;
    this.records.delete(owner);
    this.refused = this.refused.filter((r) => r.owner !== owner);
  }

  /** Hands over everything and begins anew. */
  take(): Outputs {
    if (this.records.size > 0) this.packRecords();
    const outputs = { tokens: this.tokens, refused: this.refused, notices: this.notices };
    this.tokens = new Map();
    this.buildings = [];
    this.refused = [];
    this.notices = [];
    this.hasFirst = false;
    return outputs;
  }

  private packRecords(): void {
    for (const [owner, { sampled, prompts }] of this.records) {
      const draft = this.draft(owner);
      if (draft.logprobWords !== undefined) draft.logprobs = sampled.take();
      if (prompts.length > 0) draft.prompt = prompts.map(({ id, first, column }) => ({ id, first, logprobs: column.take() }));
    }
    this.records.clear();
  }

  private recordsOf(owner: number): Records {
    let records = this.records.get(owner);
    if (records === undefined) {
      records = { sampled: new LogprobColumn(), prompts: [] };
      this.records.set(owner, records);
    }
    return records;
  }

  private draft(owner: number): TokensDraft {
    return this.building(owner).message;
  }

  private building(owner: number): Building {
    return this.buildings[owner] ?? this.begin(owner);
  }

  private begin(owner: number): Building {
    const building: Building = { message: { k: 'tokens', ids: [], indices: [], tokens: [], finishes: [] }, hasMore: false };
    this.buildings[owner] = building;
    this.tokens.set(owner, building.message);
    return building;
  }
}
