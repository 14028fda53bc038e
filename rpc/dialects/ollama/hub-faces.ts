/** POST /api/pull and DELETE /api/delete: models come from Hugging Face and go, told as Ollama tells it. */
import { z } from 'zod';
import { errorTable, InferdError } from '../../../actors/messages/errors.js';
import type { Face } from '../../face.js';
import type { SinkEvent } from '../../sink.js';
import { checkBody, refuse } from '../chat/check.js';
import type { StreamFormat, StreamWriter } from '../dialect.js';
import { errorLine, ollama } from './errors.js';
import { deleteExamples, pullExamples } from './examples.js';
import { nameOf } from './params.js';
import { errorEvent, modelName } from './schema.js';

const name = modelName.nullish().describe('HF_ID[@REV][:QUANT], also behind "hf.co/".');
const deleteBody = z.object({ model: name, name: name.describe('The same as model.') });
const pullBody = deleteBody.extend({
  stream: z.boolean().nullish().describe('Lines of JSON; true by default.'),
  insecure: z.boolean().nullish().describe('Accepted and not used: the endpoint of the hub decides.'),
});

const statusSchema = z.object({ status: z.string() });
const progressSchema = z.object({
  status: z.string().describe('"success" in the last line.'),
  digest: z.string().optional().describe('The file: what of the progress belongs together.'),
  total: z.int().optional().describe('Bytes of the file.'),
  completed: z.int().optional(),
});

const success = { status: 'success' };
const text = (value: object): string => `${JSON.stringify(value)}\n`;

/** Each file is what Ollama calls a layer. */
const progressLines: StreamFormat = { type: 'application/x-ndjson', open: () => new ProgressLines() };

class ProgressLines implements StreamWriter {
  #last = text({ status: 'pulling manifest' });

  event(event: SinkEvent): string {
    if (event.kind === 'notice') return text({ status: event.message });
    if (event.kind !== 'pull') return '';
    const { file, bytes, total } = event;
    this.#last = text({ status: `pulling ${file}`, digest: file, total, completed: bytes });
    return this.#last;
  }

  keepAlive(): string {
    return this.#last;
  }

  end(): string {
    return text(success);
  }

  fail({ kind, message }: Parameters<StreamWriter['fail']>[0]): string {
    return text(errorLine(message ?? errorTable[kind].message));
  }
}

function askedName({ model, name: older }: z.output<typeof deleteBody>): string {
  return nameOf(model ?? older ?? refuse('model', 'is required')).replace(/^(hf\.co|huggingface\.co)\//, '');
}

const route = { reads: true, access: 'admin', dialect: ollama } as const;

export const hubFaces: readonly Face[] = [
  {
    ...route,
    id: 'ollama.pull',
    verb: 'POST',
    path: '/api/pull',
    ask: ({ body }) => {
      const asked = checkBody(pullBody, body);
      const stream = asked.stream === false ? {} : { stream: true };
      return { method: 'models.pull', params: { model: askedName(asked), ...stream }, answer: () => success, stream: progressLines };
    },
    about: {
      group: 'Ollama',
      methods: ['models.pull'],
      summary: "Downloads a model from Hugging Face, as Ollama's /api/pull does from its own library.",
      params: pullBody,
      result: statusSchema,
      event: z.union([progressSchema, errorEvent]),
      streamed: 'application/x-ndjson',
      examples: pullExamples,
    },
  },
  {
    ...route,
    id: 'ollama.delete',
    verb: 'DELETE',
    path: '/api/delete',
    ask: ({ body }) => {
      const model = askedName(checkBody(deleteBody, body));
      return {
        method: 'models.delete',
        params: { model },
        answer: (result) => {
          const { deleted } = result as { readonly deleted: boolean }; // proof: of that method
          if (!deleted) throw new InferdError('model_not_found', `There is no model ${JSON.stringify(model.slice(0, 64))} to delete`);
          return success;
        },
      };
    },
    about: {
      group: 'Ollama',
      methods: ['models.delete'],
      summary: "Deletes a model from the Hugging Face cache, as Ollama's /api/delete.",
      params: deleteBody,
      result: statusSchema,
      examples: deleteExamples,
    },
  },
];
