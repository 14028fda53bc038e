/**
 * What was asked of a prompt (return_token_ids, prompt_logprobs), for streams that no answer follows: server-sent events. It goes out before
 * the first token, under the names that it has in the whole answer, in parts: whoever reads them joins the lists.
 */
import { packedIds } from '../packed-list.js';
import type { PromptRun } from './call.js';
import { promptLogprobs } from './logprobs.js';
import type { Piece, PromptPiece } from './piece.js';

/** Prompt tokens whose log-probabilities go into one piece. */
export const PROMPT_RECORDS = 64;

export interface PromptWishes {
  readonly tokenIds: boolean;
  readonly promptLogprobs: boolean;
}

/** For choice `index`. */
export function promptPieces(index: number, prompt: PromptRun, wishes: PromptWishes): readonly Piece[] {
  const piece = (of: PromptPiece): Piece => ({ index, text: '', tokens: 0, tokenIds: [], logprobs: [], finish: null, prompt: of });
  const parts = wishes.promptLogprobs ? [...prompt.entries.parts(PROMPT_RECORDS)] : [];
  return [
    ...(wishes.tokenIds ? [piece({ ids: prompt.promptIds, logprobs: [] })] : []),
    ...parts.map((part) => piece({ ids: null, logprobs: [part] })),
  ];
}

/** As members of a chunk, or of a choice. */
export function promptFields(prompt: PromptPiece | undefined) {
  if (prompt === undefined) return {};
  const { ids, logprobs } = prompt;
  return {
    ...(ids === null ? {} : { prompt_token_ids: packedIds(ids.length, [ids]) }),
    ...(logprobs.length === 0 ? {} : { prompt_logprobs: promptLogprobs(logprobs) }),
  };
}
