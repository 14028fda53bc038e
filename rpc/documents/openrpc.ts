/**
 * The OpenRPC 1.3 document, derived from the method values: names, params in positional order, results, errors, examples, and as
 * extensions the events of streams and the notifications that the daemon sends. Built once, on first use.
 */
import { z } from 'zod';
import { type ErrorKind, errorTable } from '../../actors/messages/errors.js';
import { type Example, type Method, needOf } from '../method.js';
import { statsSchema } from '../schemas/info.js';
import { groupOf, groups } from './groups.js';
import { type JsonSchema, jsonSchema } from './json-schema.js';

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
      tags: Object.fromEntries(groups.map(({ name, description }) => [name, { name, description }])),
      errors: Object.fromEntries(errorKinds.map((kind) => [kind, { code: errorTable[kind].code, message: errorTable[kind].message }])),
    },
    'x-notifications': [
      {
        name: 'stats.update',
        summary: 'One sample of a subscription.',
        params: toSchema(statsSchema.extend({ subscription: z.string() })),
      },
      { name: '$/shutdown', summary: 'The daemon stops; new work is refused.', params: toSchema(z.object({ deadline_ms: z.int() })) },
    ],
  };
}

function methodObject(method: Method): object {
  return {
    name: method.name,
    summary: method.summary,
    tags: [{ name: groupOf(method.name) }],
    paramStructure: 'either',
    params: Object.entries(method.params.shape).map(([name, schema]) => {
      const json = toSchema(schema as z.ZodType); // proof: a shape holds schemas
      const { description } = json;
      return {
        name,
        ...(description === undefined ? {} : { description }),
        required: !(schema as z.ZodType).safeParse(undefined).success,
        schema: json,
      };
    }),
    result: { name: 'result', schema: toSchema(method.result) },
    errors: errorKinds.map((kind) => ({ $ref: `#/components/errors/${kind}` })),
    ...(needOf(method) === 'any' ? {} : { 'x-scope': needOf(method) }),
    ...(method.examples === undefined ? {} : { examples: method.examples.map(pairing) }),
    ...(method.progress === undefined ? {} : { 'x-progress': toSchema(method.progress) }),
    ...(method.http === undefined ? {} : { 'x-http': { method: method.http.verb, path: method.http.path } }),
  };
}

const toSchema = (schema: z.ZodType): JsonSchema => jsonSchema(schema, 'draft-7');

/** An example's id and progress token. */
const EXAMPLE_ID = 1;

/** One call. The notifications before its response are an extension, as streams are. */
function pairing({ name, params, result, deltas }: Example): object {
  const events = deltas?.map((choices, seq) => ({ token: EXAMPLE_ID, seq, kind: 'delta', choices }));
  return {
    name,
    params: Object.entries(params).map(([param, value]) => ({ name: param, value })),
    result: { name: 'result', value: result, ...(events === undefined ? {} : { 'x-progress': events }) },
  };
}
