/**
 * The OpenRPC 1.3 document, derived from the method values: names, params in positional order, results, errors, and as extensions the
 * events of streams and the notifications that the daemon sends. Built once, on first use.
 */
import { z } from 'zod';
import { type ErrorKind, errorTable } from '../actors/messages/errors.js';
import type { Method } from './method.js';
import { statsSchema } from './schemas/info.js';

const errorKinds = Object.keys(errorTable) as ErrorKind[];

export function openrpcDocument(methods: readonly Method[], version: string): object {
  return {
    openrpc: '1.3.2',
    info: {
      title: 'inferd',
      version,
      description:
        'JSON-RPC 2.0 over WebSocket (text frames, or msgpack in binary frames with the subprotocol jsonrpc.msgpack), and over HTTP as ' +
        'POST /rpc without streaming. Batches have at most 32 members and no streaming calls. Positional params go in the order in ' +
        'which a method lists its params.',
      license: { name: 'Apache-2.0' },
    },
    methods: methods.map(methodObject),
    components: {
      errors: Object.fromEntries(errorKinds.map((kind) => [kind, { code: errorTable[kind].code, message: errorTable[kind].message }])),
    },
    'x-notifications': [
      {
        name: 'stats.update',
        summary: 'One sample of a subscription.',
        params: jsonSchema(statsSchema.extend({ subscription: z.string() })),
      },
      { name: '$/shutdown', summary: 'The daemon stops; new work is refused.', params: jsonSchema(z.object({ deadline_ms: z.int() })) },
    ],
  };
}

function methodObject(method: Method): object {
  return {
    name: method.name,
    summary: method.summary,
    paramStructure: 'either',
    params: Object.entries(method.params.shape).map(([name, schema]) => {
      const json = jsonSchema(schema as z.ZodType); // proof: a shape holds schemas
      const { description } = json as { description?: string };
      return {
        name,
        ...(description === undefined ? {} : { description }),
        required: !(schema as z.ZodType).safeParse(undefined).success,
        schema: json,
      };
    }),
    result: { name: 'result', schema: jsonSchema(method.result) },
    errors: errorKinds.map((kind) => ({ $ref: `#/components/errors/${kind}` })),
    ...(method.progress === undefined ? {} : { 'x-progress': jsonSchema(method.progress) }),
    ...(method.http === undefined ? {} : { 'x-http': { method: method.http.verb, path: method.http.path } }),
  };
}

function jsonSchema(schema: z.ZodType): object {
  const { $schema: _draft, ...json } = z.toJSONSchema(schema, { target: 'draft-7', io: 'input', unrepresentable: 'any', reused: 'inline' });
  return json;
}
