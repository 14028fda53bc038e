/** models.pull and models.delete: models come to the disk of the daemon, and go. */
import { z } from 'zod';
import { InferdError } from '../../actors/messages/errors.js';
import { repoFolderName } from '../../config/models/hub-cache.js';
import type { ModelFolder } from '../../config/models/model-folder.js';
import type { RpcDeps } from '../context.js';
import { modelsDeleteExamples, modelsPullExamples } from '../examples/daemon.js';
import { streamChoice } from '../generation/stream-option.js';
import { defineMethod } from '../method.js';
import type { Usage } from '../schemas/common.js';
import { streamField } from '../schemas/generation.js';
import { type PullNews, pulledSchema, pullProgress } from '../schemas/hub.js';
import type { CallSink } from '../sink.js';

const modelField = z.string().min(1).max(512);
const patterns = z.array(z.string().min(1).max(256)).max(64);

export function modelsPullMethod({ hub }: RpcDeps) {
  return defineMethod({
    name: 'models.pull',
    scope: 'admin',
    summary:
      'Downloads a model from Hugging Face into its cache, or goes on with it. Calls for the same model join; when the last one is ' +
      'cancelled the download ends, and what came is kept.',
    params: z.object({
      model: modelField.describe('HF_ID[@REV][:QUANT], such as Qwen/Qwen2.5-0.5B-Instruct; the embedded demo is there already.'),
      revision: z.string().max(256).nullish().describe('Branch, tag or commit, in place of @REV.'),
      include: patterns.nullish().describe('Patterns of the files to take instead of those that serving needs.'),
      exclude: patterns.nullish().describe('Patterns of files to leave out.'),
      stream: streamField,
    }),
    result: pulledSchema,
    progress: pullProgress,
    fails: ['request_failed'],
    work: true,
    ownsCancel: true,
    examples: modelsPullExamples,
    handler: async ({ model, revision, include, exclude, stream }, ctx) => {
      const open = streamChoice({ stream, stream_options: undefined }, ctx);
      const sink = open?.({ id: '', object: '', created: 0, model }, () => {}, noUsage) ?? null;
      try {
        const request = { model, include: include ?? [], exclude: exclude ?? [], ...(revision ? { revision } : {}) };
        const pulled = await hub.pull(request, (news) => tell(sink, news), ctx.cancellation);
        return { ...pulled, state: 'pulled' as const };
      } finally {
        sink?.close();
      }
    },
  });
}

/** Does a loaded model come from the folder of this one, whatever name it is served under? */
function isOf({ name, path }: ModelFolder, id: string): boolean {
  return name === id || path.split(/[/\\]/).includes(repoFolderName(id));
}

/** No event of a pull is needed for the next one: where there is no room, it is left out. */
function tell(sink: CallSink | null, news: PullNews): void {
  if (sink !== null && !sink.full) sink.event(news);
}

/** A download makes no tokens. */
const noUsage = (): Usage => ({
  prompt_tokens: 0,
  completion_tokens: 0,
  total_tokens: 0,
  prompt_tokens_details: { cached_tokens: 0 },
  ttft_s: 0,
  tpot_s: 0,
  latency_s: 0,
  queue_s: 0,
});

export function modelsDeleteMethod({ hub, models }: RpcDeps) {
  return defineMethod({
    name: 'models.delete',
    scope: 'admin',
    summary: 'Deletes a model, or one revision of it, from the Hugging Face cache; not one that is loaded.',
    params: z.object({ model: modelField.describe('HF_ID[@REV].') }),
    result: z.object({
      model: z.string(),
      deleted: z.boolean().describe('False: there was none.'),
      bytes: z.int().describe('That became free.'),
    }),
    acts: true,
    fails: ['request_failed'],
    ownsCancel: true,
    examples: modelsDeleteExamples,
    handler: async ({ model }, { cancellation }) => {
      const id = model.replace(/[@:].*$/, '');
      const used = models.list().find((known) => isOf(known.model, id) && !['unloaded', 'failed'].includes(known.residence.state));
      if (used !== undefined) {
        const name = JSON.stringify(used.model.name);
        throw new InferdError(
          'request_failed',
          `The model ${name} is ${used.residence.state === 'starting' ? 'being loaded' : 'loaded'}; unload it first, or stop the daemon`,
          { reason: 'in_use' },
        );
      }
      const bytes = await hub.remove(model, cancellation);
      return { model, deleted: bytes !== null, bytes: bytes ?? 0 };
    },
  });
}
