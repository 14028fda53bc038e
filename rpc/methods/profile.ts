/** profile.start and profile.stop: a timeline of scheduler, executors and devices, as files for Perfetto. */
import type { RpcDeps } from '../context.js';
import { profileStartExamples, profileStopExamples } from '../examples/daemon.js';
import { defineMethod } from '../method.js';
import { emptyParams } from '../schemas/common.js';
import { profileStartedSchema, profileStoppedSchema } from '../schemas/profile.js';

export function profileStartMethod({ profiler }: RpcDeps) {
  return defineMethod({
    name: 'profile.start',
    summary: 'Records what scheduler, executors and devices do, until profile.stop or profile.max_seconds.',
    params: emptyParams,
    result: profileStartedSchema,
    http: { verb: 'POST', path: '/start_profile' },
    acts: true,
    scope: 'admin',
    fails: ['request_failed'],
    work: true,
    examples: profileStartExamples,
    handler: () => profiler.start(),
  });
}

export function profileStopMethod({ profiler }: RpcDeps) {
  return defineMethod({
    name: 'profile.stop',
    summary: 'Ends the recording and writes its files; answers where they are and how idle the devices were.',
    params: emptyParams,
    result: profileStoppedSchema,
    http: { verb: 'POST', path: '/stop_profile' },
    acts: true,
    scope: 'admin',
    fails: ['request_failed'],
    examples: profileStopExamples,
    handler: () => profiler.stop(),
  });
}
