/** /api/tags, /api/ps, /api/show and /api/version: the models of the daemon as Ollama tells of its own. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Face } from '../../face.js';
import type { modelSchema } from '../../schemas/info.js';
import { checkBody, refuse } from '../chat/check.js';
import { ollama } from './errors.js';
import { showExamples } from './examples.js';
import { nameOf } from './params.js';
import { modelName } from './schema.js';

type Model = z.output<typeof modelSchema>;

/** The version of Ollama whose API these routes follow: its clients look for features by it. */
const OLLAMA_VERSION = '0.13.0';
/** Models here are not unloaded at a time that is known before. */
const NEVER = '9999-12-31T23:59:59Z';

const detailsSchema = z.object({
  parent_model: z.literal(''),
  format: z.enum(['gguf', 'safetensors']),
  family: z.string(),
  families: z.array(z.string()),
  parameter_size: z.string().describe('Empty while the model was never loaded.'),
  quantization_level: z.string(),
});
const listed = z.object({
  name: z.string(),
  model: z.string(),
  modified_at: z.string().describe('ISO 8601, when the daemon started.'),
  size: z.int().describe('Bytes of the weight files.'),
  digest: z.string().describe('Of name and size: tells models apart, and is no hash of their files.'),
  details: detailsSchema,
});
const loaded = listed.omit({ modified_at: true }).extend({
  expires_at: z.string().describe('ISO 8601.'),
  size_vram: z.int().describe('Bytes; 0 on the CPU.'),
  context_length: z.int(),
});
const shown = z.object({
  license: z.string(),
  modelfile: z.string(),
  parameters: z.string(),
  template: z.string(),
  details: detailsSchema,
  model_info: z.record(z.string(), z.union([z.string(), z.number(), z.null()])),
  capabilities: z.array(z.string()),
  modified_at: z.string(),
});
const showBody = z.object({ model: modelName.nullish(), name: modelName.nullish().describe('The same as model.') });

const gguf = 'GGUF ';

function details({ architecture, parameters, format }: Model): z.output<typeof detailsSchema> {
  const family = architecture.replace(/For\w+$/, '').toLowerCase();
  return {
    parent_model: '',
    format: format.startsWith(gguf) ? 'gguf' : 'safetensors',
    family,
    families: [family],
    parameter_size: parameters === null ? '' : inUnits(parameters),
    quantization_level: format.startsWith(gguf) ? format.slice(gguf.length) : format,
  };
}

function inUnits(parameters: number): string {
  return parameters >= 1e9 ? `${(parameters / 1e9).toFixed(1)}B` : `${(parameters / 1e6).toFixed(1)}M`;
}

function entry(model: Model): z.output<typeof listed> {
  const { id, size_bytes: size } = model;
  const digest = createHash('sha256').update(`${id} ${size}`).digest('hex');
  return { name: id, model: id, modified_at: timeOf(model), size, digest, details: details(model) };
}

const timeOf = ({ created }: Model): string => new Date(created * 1000).toISOString();

/** Its backend is named with its device: "cpu avx2 x8", "cuda NVIDIA H200". */
const isOnHost = ({ backend }: Model): boolean => /^cpu\b/.test(backend ?? 'cpu');

function running(model: Model): z.output<typeof loaded> {
  const { modified_at: _time, ...same } = entry(model);
  return { ...same, expires_at: NEVER, size_vram: isOnHost(model) ? 0 : model.size_bytes, context_length: model.max_model_len };
}

function show(model: Model): z.output<typeof shown> {
  const { family } = details(model);
  return {
    license: '',
    modelfile: '',
    parameters: '',
    template: '',
    details: details(model),
    model_info: {
      'general.architecture': family,
      'general.parameter_count': model.parameters,
      [`${family}.context_length`]: model.max_model_len,
      [`${family}.vocab_size`]: model.vocab_size,
    },
    capabilities: ['completion', 'tools'],
    modified_at: timeOf(model),
  };
}

const get = { verb: 'GET', reads: false, access: 'infer', dialect: ollama } as const;
const about = { group: 'Ollama', params: z.object({}), examples: [] } as const;
const modelsOf = (result: unknown) => (result as { readonly data: readonly Model[] }).data; // proof: of models.list

export const modelFaces: readonly Face[] = [
  {
    ...get,
    id: 'ollama.tags',
    path: '/api/tags',
    ask: () => ({ method: 'models.list', params: {}, answer: (result) => ({ models: modelsOf(result).map(entry) }) }),
    about: {
      ...about,
      methods: ['models.list'],
      summary: "The models that can be asked, as Ollama's /api/tags.",
      result: z.object({ models: z.array(listed) }),
    },
  },
  {
    ...get,
    id: 'ollama.ps',
    path: '/api/ps',
    ask: () => ({
      method: 'models.list',
      params: {},
      answer: (result) => {
        const there = modelsOf(result).filter(({ state }) => state === 'ready' || state === 'restarting' || state === 'draining');
        return { models: there.map(running) };
      },
    }),
    about: {
      ...about,
      methods: ['models.list'],
      summary: "The models that are loaded, as Ollama's /api/ps.",
      result: z.object({ models: z.array(loaded) }),
    },
  },
  {
    ...get,
    verb: 'POST',
    reads: true,
    id: 'ollama.show',
    path: '/api/show',
    ask: ({ body }) => {
      const { model, name } = checkBody(showBody, body);
      const asked = model ?? name ?? refuse('model', 'is required');
      return { method: 'models.get', params: { model: nameOf(asked) }, answer: (result) => show(result as Model) }; // proof: of that method
    },
    about: {
      ...about,
      methods: ['models.get'],
      summary: "One model, as Ollama's /api/show.",
      params: showBody,
      result: shown,
      examples: showExamples,
    },
  },
  {
    ...get,
    id: 'ollama.version',
    path: '/api/version',
    ask: () => ({ method: 'ping', params: {}, answer: () => ({ version: OLLAMA_VERSION }) }),
    about: {
      ...about,
      methods: ['ping'],
      summary: 'The version of Ollama whose API these routes follow; /version tells that of the daemon.',
      result: z.object({ version: z.string() }),
    },
  },
];
