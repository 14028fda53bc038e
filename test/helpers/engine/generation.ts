/** GenerationParams with neutral values and a sink that does nothing, for tests below the rpc layer. */
import type { RequestSink } from '../../../actors/client-types.js';
import type { GenerationParams } from '../../../actors/messages/requests.js';
import { defaultSampling } from '../../../actors/messages/sampling.js';

export function generation(changes: Partial<GenerationParams> = {}): GenerationParams {
  return {
    sampling: { ...defaultSampling, temperature: 0 },
    seedLo: 1,
    seedHi: 2,
    topLogprobs: -1,
    promptLogprobs: -1,
    logitBias: [],
    maxTokens: 16,
    stop: [],
    stopTokenIds: [],
    includeStop: false,
    ignoreEos: false,
    skipSpecialTokens: true,
    n: 1,
    bestOf: 1,
    priority: 0,
    truncatePromptTokens: null,
    echo: false,
    constraint: null,
    ...changes,
  };
}

export const deaf: RequestSink = {
  onEncoded() {},
  onNotice() {},
  onStarted() {},
  onPromptLogprobs() {},
  onDeltas() {},
  onEnd() {},
};
