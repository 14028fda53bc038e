/**
 * Reads the body of a StepResult (actors/messages/step.ts). Runs in the scheduler thread; reused for every result, so the fields
 * are valid until the next `load`.
 */
import type { TokenLogprob } from '../messages/requests.js';
import { LAYOUT_VERSION, RESULT, RESULT_PROMPT, RESULT_SAMPLE, RESULT_TOP } from '../messages/step.js';
import { invariant } from '../runtime/invariant.js';

export class ResultReader {
  step = 0;
  epoch = 0;
  errorCode = 0;
  numSamples = 0;
  numPromptLogprobs = 0;
  execUs = 0;
  private words: Int32Array = new Int32Array(0);
  private floats: Float32Array = new Float32Array(0);
  private samplesAt = 0;
  private promptsAt = 0;
  private topsAt = 0;
  private numTops = 0;

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
    this.numSamples = this.header(RESULT.numSamples);
    this.numPromptLogprobs = this.header(RESULT.numPromptLogprobs);
    this.numTops = this.header(RESULT.numTops);
    this.execUs = this.header(RESULT.execUs);
    this.samplesAt = RESULT.headerWords;
    this.promptsAt = this.samplesAt + this.numSamples * RESULT_SAMPLE.words;
    this.topsAt = this.promptsAt + this.numPromptLogprobs * RESULT_PROMPT.words;
    invariant(this.topsAt + this.numTops * RESULT_TOP.words <= words.length, 'a step result is cut short');
  }

  sampleSlot(i: number): number {
    return this.words[this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.slot]!; // i < numSamples
  }

  sampleToken(i: number): number {
    return this.words[this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.token]!; // i < numSamples
  }

  /** NaN when not asked for. */
  sampleLogprob(i: number): number {
    return this.floats[this.samplesAt + i * RESULT_SAMPLE.words + RESULT_SAMPLE.logprob]!; // i < numSamples
  }

  /** Everything about a sampled token, as an object of its own. */
  sampleDetail(i: number): TokenLogprob {
    const at = this.samplesAt + i * RESULT_SAMPLE.words;
    return {
      token: this.word(at + RESULT_SAMPLE.token),
      logprob: this.float(at + RESULT_SAMPLE.logprob),
      rank: this.word(at + RESULT_SAMPLE.rank),
      top: this.tops(this.word(at + RESULT_SAMPLE.topOffset), this.word(at + RESULT_SAMPLE.topCount)),
    };
  }

  promptSlot(i: number): number {
    return this.word(this.promptsAt + i * RESULT_PROMPT.words + RESULT_PROMPT.slot);
  }

  promptDetail(i: number): TokenLogprob & { readonly position: number } {
    const at = this.promptsAt + i * RESULT_PROMPT.words;
    return {
      position: this.word(at + RESULT_PROMPT.position),
      token: this.word(at + RESULT_PROMPT.token),
      logprob: this.float(at + RESULT_PROMPT.logprob),
      rank: this.word(at + RESULT_PROMPT.rank),
      top: this.tops(this.word(at + RESULT_PROMPT.topOffset), this.word(at + RESULT_PROMPT.topCount)),
    };
  }

  private tops(offset: number, count: number): readonly (readonly [number, number])[] {
    invariant(offset >= 0 && count >= 0 && offset + count <= this.numTops, 'a step result names top entries it does not have');
    const top: (readonly [number, number])[] = [];
    for (let i = offset; i < offset + count; i++) {
      const at = this.topsAt + i * RESULT_TOP.words;
      top.push([this.word(at + RESULT_TOP.id), this.float(at + RESULT_TOP.logprob)]);
    }
    return top;
  }

  private header(word: number): number {
    return this.words[word]!; // the header's length was checked
  }

  private word(at: number): number {
    return this.words[at]!; // within the sections checked by load
  }

  private float(at: number): number {
    return this.floats[at]!; // within the sections checked by load
  }
}
