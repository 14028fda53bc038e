/**
 * Do ids that a caller sent name tokens of the model? This is the one check against the vocabulary: what stands before it knows no model.
 * Pure; called by actor.ts and encode/encode.ts for whatever comes in.
 */
import { invalidParams, type ParamIssue } from '../../messages/errors.js';
import type { GenerationParams, TokenIds } from '../../messages/requests.js';

function namesToken(id: number, vocabSize: number): boolean {
  return Number.isInteger(id) && id >= 0 && id < vocabSize;
}

function notAToken(path: string, id: number, vocabSize: number): ParamIssue {
  return { path, message: `${id} is not a token id of this model (0 .. ${vocabSize - 1})` };
}

/** @param path names the parameter in the error. @throws InferdError invalid_params that names the first id that is no token's. */
export function checkIds(ids: TokenIds, vocabSize: number, path: string): Int32Array {
  const checked = new Int32Array(ids.length);
  for (let i = 0; i < ids.length; i++) {
    const id = ids[i]!; // i < length
    if (!namesToken(id, vocabSize)) throw invalidParams([notAToken(path, id, vocabSize)]);
    checked[i] = id;
  }
  return checked;
}

/** @throws InferdError invalid_params that names the first id of each parameter that is no token's. */
export function checkTokenIds(params: GenerationParams, vocabSize: number): void {
  const issues: ParamIssue[] = [];
  const check = (path: string, ids: readonly number[]): void => {
    const wrong = ids.find((id) => !namesToken(id, vocabSize));
    if (wrong !== undefined) issues.push(notAToken(path, wrong, vocabSize));
  };
  const biased = params.logitBias.map(([id]) => id);
  check('logit_bias', biased);
  check('stop_token_ids', params.stopTokenIds);
  if (issues.length > 0) throw invalidParams(issues);
}
