/** Fields that say what form the answer must have: OpenAI's response_format and vLLM's guided_* and structured_outputs. */
import { z } from 'zod';
import type { RequestLimits } from './common.js';
import { listOf } from './first-wrong.js';

/** Of any daemon; structured_output.max_enum may allow fewer. */
const maxChoices = 4096;

/** Fields for z.object. At most one constraint a request: rpc/generation/constraint.ts. */
export function constraintFields({ maxConstraintBytes }: Pick<RequestLimits, 'maxConstraintBytes'>) {
  // Said here, so that what is too large goes nowhere.
  const small = <S extends z.ZodType>(schema: S): S =>
    schema.refine((value) => Buffer.byteLength(JSON.stringify(value)) <= maxConstraintBytes, {
      error: `must have at most structured_output.max_schema_bytes = ${maxConstraintBytes} bytes`,
    });
  const jsonSchema = small(z.union([z.looseObject({}), z.boolean()], { error: 'must be a JSON schema: an object or a boolean' }));
  // On its way to another thread half of a pair would become another character, and the answer one that was not asked for.
  const text = z.string().refine((s) => s.isWellFormed(), 'holds half of a surrogate pair');
  const jsonSchemaOrText = small(
    z.union([z.looseObject({}), z.boolean(), text], {
      error: 'must be a JSON schema: an object, a boolean, or JSON text of one',
    }),
  );
  const pattern = small(text).describe('A regular expression that the whole answer matches.');
  const choices = small(listOf(text, { least: 1, most: maxChoices, unit: 'string' })).describe('The answer is one of these strings.');
  const grammar = small(text).describe('A grammar in GBNF; the whole answer matches its rule root.');
  const responseFormat = z.discriminatedUnion(
    'type',
    [
      z.looseObject({ type: z.literal('text') }),
      z.looseObject({ type: z.literal('json_object') }),
      z.looseObject({
        type: z.literal('json_schema'),
        json_schema: z.looseObject({
          name: z.string().nullish(),
          description: z.string().nullish(),
          schema: jsonSchema,
          strict: z.boolean().nullish().describe('Accepted; the schema is enforced either way.'),
        }),
      }),
    ],
    { error: 'must be {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": ...}}' },
  );
  return {
    response_format: responseFormat.nullish().describe('text, json_object, or json_schema: the answer is a value of the schema.'),
    guided_json: jsonSchemaOrText.nullish().describe('The answer is a value of this JSON schema.'),
    guided_regex: pattern.nullish(),
    guided_choice: choices.nullish(),
    guided_grammar: grammar.nullish(),
    structured_outputs: z
      .object({
        json: jsonSchemaOrText.nullish(),
        regex: pattern.nullish(),
        choice: choices.nullish(),
        grammar: grammar.nullish(),
        json_object: z.boolean().nullish(),
      })
      .strict()
      .nullish()
      .describe('The same constraints as one object.'),
  };
}

export type ConstraintBody = z.output<z.ZodObject<ReturnType<typeof constraintFields>>>;
