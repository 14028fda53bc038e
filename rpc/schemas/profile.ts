/** Results of profile.start and profile.stop, and who makes them. */
import { z } from 'zod';

export const profileStartedSchema = z.object({ status: z.literal('recording'), files: z.array(z.string()) });

const perPart = z.object({ scheduler: z.int(), executor: z.int(), device: z.int() });

export const profileStoppedSchema = z.object({
  status: z.literal('written'),
  files: z.array(z.string()).describe('One Chrome-trace file (gzip) a rank, on the machine of the daemon.'),
  ended_by: z.string().describe('"asked", or what ended the recording before: "max_seconds", "the daemon stops".'),
  summary: z.array(
    z.object({
      rank: z.int(),
      device: z.object({
        source: z.string().describe('How the device was seen: "cupti" (every kernel and copy), "events" (steps), "ops" (CPU), "none".'),
        note: z.string(),
      }),
      events: perPart,
      dropped: perPart.describe('Events beyond profile.max_events.'),
      steps: z.int(),
      decode_steps: z.int().describe('Steps that the figures below are of.'),
      busy_ms: z.number(),
      idle_ms: z.number(),
      idle_share: z.number().nullable().describe('Share of the time, from the first kernel of decode steps to the last, without one.'),
      median_step_ms: z.number().nullable(),
      median_period_ms: z.number().nullable().describe('From the start of one decode step to that of the next.'),
    }),
  ),
});

export type ProfileStarted = z.output<typeof profileStartedSchema>;
export type ProfileStopped = z.output<typeof profileStoppedSchema>;

/** Records what the engine does; made by the daemon. Both reject with an InferdError that says what is wrong. */
export interface Profiler {
  start(): Promise<ProfileStarted>;
  stop(): Promise<ProfileStopped>;
}
