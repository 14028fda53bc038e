/**
 * Chat messages and tools in OpenAI's shape. Members that are not named here are handed to the model's template as they are.
 */
import { z } from 'zod';
import { listOf, recordOf } from './first-wrong.js';

const maxMessages = 4096;
const maxTools = 128;

const role = z.string().regex(/^[A-Za-z][A-Za-z0-9_-]{0,31}$/, 'must be a role such as system, user, assistant or tool');

/** One part of a message's content; only text can be answered, the others are refused by name in rpc/generation/messages.ts. */
export interface ContentPart {
  readonly type: string;
  readonly text?: string;
}

function isPart(value: unknown): value is ContentPart {
  if (typeof value !== 'object' || value === null) return false;
  const { type, text } = value as { type?: unknown; text?: unknown };
  return typeof type === 'string' && (text === undefined || typeof text === 'string');
}

/** Checked by hand, so that a list of a thousand wrong parts is one issue and not a thousand. */
const contentSchema = z
  .custom<string | readonly ContentPart[]>((value) => typeof value === 'string' || (Array.isArray(value) && value.every(isPart)), {
    error: 'must be a string or a list of parts {type, text}',
  })
  .meta({
    anyOf: [
      { type: 'string' },
      { type: 'array', items: { type: 'object', properties: { type: { type: 'string' }, text: { type: 'string' } }, required: ['type'] } },
    ],
  });

const toolCall = z.looseObject({
  id: z.string().nullish(),
  type: z.literal('function').nullish(),
  function: z.looseObject({
    name: z.string(),
    arguments: z.union([z.string(), z.record(z.string(), z.unknown())], { error: 'must be a JSON text or an object' }).nullish(),
  }),
});

const messageSchema = z.looseObject({
  role,
  content: contentSchema.nullish(),
  name: z.string().nullish(),
  tool_calls: z.array(toolCall).max(maxTools).nullish(),
  tool_call_id: z.string().nullish(),
});
export type MessageBody = z.output<typeof messageSchema>;

export const messagesSchema = listOf(messageSchema, { least: 1, most: maxMessages, unit: 'message' });

const toolSchema = z.looseObject({
  type: z.literal('function'),
  function: z.looseObject({
    name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1 to 64 letters, digits, "_" or "-"'),
    description: z.string().nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish(),
    strict: z.boolean().nullish(),
  }),
});

export const toolsSchema = z
  .array(toolSchema)
  .max(maxTools)
  .refine((tools) => new Set(tools.map((t) => t.function.name)).size === tools.length, 'must not name a function twice');
export type ToolBody = z.output<typeof toolSchema>;

/** Names that a template or its renderer uses itself. */
const reservedTemplateNames = new Set([
  'messages',
  'tools',
  'documents',
  'add_generation_prompt',
  'continue_final_message',
  'chat_template',
  'tokenize',
  'bos_token',
  'eos_token',
  'pad_token',
  'unk_token',
  'sep_token',
  'cls_token',
  'mask_token',
  'raise_exception',
  'strftime_now',
  'range',
  'namespace',
  'loop',
  'true',
  'false',
  'none',
  'True',
  'False',
  'None',
]);
const maxTemplateArgs = 16;

/** Extra variables of the template: plain values under names that nothing else uses. */
export const templateArgsSchema = recordOf(
  z.union([z.string().max(1024), z.number(), z.boolean(), z.null()], { error: 'must be a string, number, boolean or null' }),
  { most: maxTemplateArgs },
)
  .refine((args) => Object.keys(args).every((name) => /^[A-Za-z_]\w{0,63}$/.test(name)), 'names must be identifiers')
  .refine((args) => !Object.keys(args).some((name) => reservedTemplateNames.has(name)), 'cannot replace a variable of the template itself');
