/**
 * A schema as JSON Schema, for documents: draft 7 as OpenRPC wants it, draft 2020-12 as OpenAPI 3.1 does. What JSON Schema has no word
 * for (a check by hand) allows anything, unless the schema says itself how it is to be shown (`meta`).
 */
import { z } from 'zod';

export type JsonSchema = Readonly<Record<string, unknown>>;
export type SchemaDraft = 'draft-7' | 'draft-2020-12';

/** As clients send it: what has a default may be left out. */
export function jsonSchema(schema: z.ZodType, target: SchemaDraft): JsonSchema {
  const { $schema: _draft, ...json } = z.toJSONSchema(schema, { target, io: 'input', unrepresentable: 'any', reused: 'inline' });
  return json;
}
