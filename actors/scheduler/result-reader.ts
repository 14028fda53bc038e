/**
 * Reads the body of a StepResult (actors/messages/step.ts). Runs in the scheduler thread; reused for every result, so the fields
 * are valid until the next `load`.
 */
import { LOGPROB, LOGPROB_TOP, recordWords } from '../messages/logprobs.js';
import { LAYOUT_VERSION, RESULT, RESULT_POOLED, RESULT_PROMPT, RESULT_SAMPLE, RESULT_TOP } from '../messages/step.js';
import { invariant } from '../runtime/invariant.js';

/** Places behind the token, in samples and prompt entries alike; what lies between is that of a record. */
const TOP_OFFSET = 3;
const TOP_COUNT = 4;

for (const entry of [RESULT_SAMPLE, RESULT_PROMPT]) {
  const { token } = entry;
  const alike = entry.logprob === token + LOGPROB.logprob && entry.rank === token + LOGPROB.rank;
  if (!alike || entry.topOffset !== token + TOP_OFFSET || entry.topCount !== token + TOP_COUNT || RESULT_TOP.words !== LOGPROB_TOP.words) {
    throw new Error('result-reader.ts: step.ts and logprobs.ts disagree');
  }
}

export class ResultReader {
  step = 0;
  epoch = 0;
  errorCode = 0;
  /** Sampled tokens. */
  numTokens = 0;
  numPromptLogprobs = 0;
  numPooled = 0;
  execUs = 0;
  private words: Int32Array = new Int32Array(0);
  private floats: Float32Array = new Float32Array(0);
  private samplesAt = 0;
  private promptsAt = 0;
  private topsAt = 0;
  private numTops = 0;
  /** Of the pooled state that is read next. */
  private pooledAt = 0;
  /** The record that was read last. */
  private record: Int32Array = new Int32Array(recordWords(20));

  /** @throws BrokenInvariant when the body is not a result of this layout. */
  load(body: Uint8Array): void {
    // A view when aligned; a copy of an odd slice otherwise.
    const bytes = body.byteOffset % 4 === 0 ? body : body.slice();
    const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
    this.words = words;
    this.floats = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength >> 2);
    invariant(words.length >= RESULT.headerWords && words[RESULT.layoutVersion] === LAYOUT_VERSION, 'a step result has another layout');
    this.step = this.header(RESULT.step);
    this.epoch = this.header(RESULT.epoch);
    this.errorCode = this.header(RESULT.errorCode);
    this.numTokens = this.header(RESULT.numSamples);
    this.numPromptLogprobs = this.header(RESULT.numPromptLogprobs);
    this.numTops = this.header(RESULT.numTops);
    this.numPooled = this.header(RESULT.numPooled);
    this.execUs = this.header(RESULT.execUs);
    this.samplesAt = RESULT.headerWords;
    this.promptsAt = this.samplesAt + this.numTokens * RESULT_SAMPLE.words;
    this.topsAt = this.promptsAt + this.numPromptLogprobs * RESULT_PROMPT.words;
    this.pooledAt = this.topsAt + this.numTops * RESULT_TOP.words;
    invariant(this.pooledAt <= words.length, 'a step result is cut short');
  }

  /** To be called at most numPooled times. The values are a view of the result. @throws BrokenInvariant when it ends before. */
  nextPooled(): { readonly slot: number; readonly values: Float32Array } {
    const first = this.pooledAt + RESULT_POOLED.values;
    invariant(first <= this.words.length, 'a step result is cut short');
    const end = first + this.word(this.pooledAt + RESULT_POOLED.width);
    invariant(end >= first && end <= this.words.length, 'a step result is cut short');
    const slot = this.word(this.pooledAt + RESULT_POOLED.slot);
    this.pooledAt = end;
    return { slot, values: this.floats.subarray(first, end) };
  }

  /** Of the i-th sampled token. */
  tokenSlot(i: number): number {
    return this.words[this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.slot]!; // i < numTokens
  }

  token(i: number): number {
    return this.words[this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.token]!; // i < numTokens
  }

  /** Of the first token of a sample: the drafts that were compared. */
  drafted(i: number): number {
    return this.words[this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.drafted]!; // i < numTokens
  }

  /** NaN when not asked for. */
  tokenLogprob(i: number): number {
    return this.floats[this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.logprob]!; // i < numTokens
  }

  /** The log-probability record (logprobs.ts) of a sampled token: a view that is valid until the next record is read. */
  tokenRecord(i: number): Int32Array {
    return this.recordAt(this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.token);
  }

  promptSlot(i: number): number {
    return this.word(this.promptsAt + i * RESULT_PROMPT.words + RESULT_PROMPT.slot);
  }

  promptPosition(i: number): number {
    return this.word(this.promptsAt + i * RESULT_PROMPT.words + RESULT_PROMPT.position);
  }

  /** As `tokenRecord`, of a prompt token. */
  promptRecord(i: number): Int32Array {
    return this.recordAt(this.promptsAt + i * RESULT_PROMPT.words + RESULT_PROMPT.token);
  }

  /** `at`: where token, logprob, rank, topOffset and topCount stand. */
  private recordAt(at: number): Int32Array {
    const offset = this.word(at + TOP_OFFSET);
    const count = this.word(at + TOP_COUNT);
    invariant(offset >= 0 && count >= 0 && offset + count <= this.numTops, 'a step result names top entries it does not have');
    const words = recordWords(count);
    if (words > this.record.length) this.record = new Int32Array(words);
    const { record } = this;
    record[LOGPROB.token] = this.word(at + LOGPROB.token);
    record[LOGPROB.logprob] = this.word(at + LOGPROB.logprob);
    record[LOGPROB.rank] = this.word(at + LOGPROB.rank);
    record[LOGPROB.numTop] = count;
    const tops = this.topsAt + offset * RESULT_TOP.words;
    record.set(this.words.subarray(tops, tops + count * RESULT_TOP.words), LOGPROB.top);
    return record.subarray(0, words);
  }

  private header(word: number): number {
    return this.words[word]!; // the header's length was checked
  }

  private word(at: number): number {
    return this.words[at]!; // within the sections checked by load
  }
}
