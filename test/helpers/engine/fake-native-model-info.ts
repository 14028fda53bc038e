/** What an engine without a model says of itself. */
import type { NativeModelInfo } from '../../../native/index.js';

const MIB = 2 ** 20;

export function fakeNativeModelInfo(facts: Pick<NativeModelInfo, 'vocabSize' | 'maxPositions'>): NativeModelInfo {
  return {
    architecture: 'Fake',
    numLayers: 1,
    hiddenSize: 1,
    parameters: 1,
    weightBytes: 1,
    tableBytes: 0,
    dtype: 'f32',
    kvDtype: 'f32',
    kvScaledLayers: 0,
    blockBytes: 1024,
    stepBytes: MIB,
    freeBytes: 1024 * MIB,
    totalBytes: 2048 * MIB,
    hostFreeBytes: 1024 * MIB,
    backend: 'fake',
    ...facts,
  };
}
