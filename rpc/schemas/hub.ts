/**
 * Models on the disk of the daemon, and how they come there and go: what the methods models.pull and models.delete need of the daemon. Made by
 * it (daemon/hub); everything here is in the words of the protocol.
 */
import { z } from 'zod';
import type { Cancellation } from '../../actors/runtime/cancellation.js';

export interface PullRequest {
  /** HF_ID[@REV][:QUANT]. */
  readonly model: string;
  /** In place of @REV. */
  readonly revision?: string;
  readonly include: readonly string[];
  readonly exclude: readonly string[];
}

/** What a pull tells while it runs. */
export type PullNews =
  | {
      readonly kind: 'pull';
      readonly file: string;
      /** Of the file: on the disk, and in all. */
      readonly bytes: number;
      readonly total: number;
      /** Of all files of the pull. */
      readonly all_bytes: number;
      readonly all_total: number;
    }
  /** A sentence for people: it waits, tries again, or fetches a file once more. */
  | { readonly kind: 'notice'; readonly message: string };

export interface PulledModel {
  /** "org/name" */
  readonly model: string;
  /** The commit; null for the embedded model. */
  readonly revision: string | null;
  /** Folder with its files. */
  readonly path: string;
  readonly files: number;
  /** Of its files. */
  readonly bytes: number;
}

export interface ModelHub {
  /**
   * Brings a model to the disk, or joins whoever does so already. A caller who cancels hears no more; when the last one does, the transfer
   * ends, and what came is kept.
   * @throws InferdError invalid_params, model_not_found, request_failed (data.reason), rate_limited, shutting_down, cancelled
   */
  pull(request: PullRequest, onNews: (news: PullNews) => void, cancellation: Cancellation): Promise<PulledModel>;
  /**
   * Takes a model, or with @REV one revision of it, from the disk. Answers the bytes that became free; null: there was nothing.
   * @throws InferdError invalid_params, request_failed, cancelled
   */
  remove(model: string, cancellation: Cancellation): Promise<number | null>;
}

const base = { token: z.union([z.string(), z.number()]), seq: z.int().describe('Counts from 0 without gaps.') };

/** Params of $/progress: the events of models.pull. */
export const pullProgress = z.discriminatedUnion('kind', [
  z.object({
    ...base,
    kind: z.literal('pull'),
    file: z.string(),
    bytes: z.int().describe('Of the file, on the disk.'),
    total: z.int(),
    all_bytes: z.int().describe('Of all files of the pull, on the disk.'),
    all_total: z.int(),
  }),
  z.object({ ...base, kind: z.literal('notice'), message: z.string().describe('It waits, tries again, or fetches a file once more.') }),
]);

export const pulledSchema = z.object({
  model: z.string(),
  state: z.literal('pulled'),
  revision: z.string().nullable().describe('The commit; null for the embedded model.'),
  path: z.string().describe('Folder with its files, on the disk of the daemon.'),
  files: z.int(),
  bytes: z.int(),
});
