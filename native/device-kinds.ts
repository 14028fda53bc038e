/**
 * What is known of the backends beside their names: a row for each, so that whatever depends on the kind of device finds it here. Round
 * figures, which decide how work is done and never what comes out.
 */
import type { BackendName } from './index.js';

export interface DeviceKind {
  /**
   * One device, the host, whose memory every model takes as it is free; else there are numbered ones, and of all the memory that each has a
   * share is used.
   */
  readonly onHost: boolean;
  /** Operations that it does in the time that one byte takes between it and the host's memory. */
  readonly operationsPerByte: number;
  /** A row beside another, as a share of a step: the time of its products, its attention and its logits. */
  readonly draftRowCost: number;
  /** Rows of a step up to which its time is that of reading the weights: where 2 operations a weight take as long as its two bytes. */
  readonly draftFreeRows: number;
  /** Tokens of a step in which prompts are prefilled beside sequences that decode: as few as cost little of a large prefill's rate. */
  readonly mixedStepTokens: number;
}

export const deviceKinds: Readonly<Record<BackendName, DeviceKind>> = {
  cpu: {
    onHost: true,
    // 1e11 operations/s a few cores; 2e9 bytes/s of copies beside them.
    operationsPerByte: 50,
    // Rows cost much from the first on: where a batch is as fast as it gets.
    ...{ draftRowCost: 0.3, draftFreeRows: 32 },
    // 512 tokens of a 1B model in steps of 128 take 0 to 6 % longer than in one, of 0.4 (int4) to 1.2 s (bf16) each in two threads.
    mixedStepTokens: 128,
  },
  cuda: {
    onHost: false,
    // 3e14 operations/s of a large prefill in 16 bits; 2.5e10 bytes/s of PCIe 4.0 x16.
    operationsPerByte: 12_000,
    // 790 TFLOP/s and 4.26 TB/s.
    ...{ draftRowCost: 0.05, draftFreeRows: 185 },
    // An H100 takes 25 ms for so many of an 8B model.
    mixedStepTokens: 1024,
  },
};

/** All of them, in the order of the table. */
export const backendNames = Object.keys(deviceKinds) as readonly BackendName[]; // proof: a row for each
