/** Ajv over the schemas of the daemon's two documents: draft 7 in OpenRPC, draft 2020-12 in OpenAPI. */
import { Ajv } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';

/** Every fault of a value, as a sentence; empty when it fits. `components` is what references of an OpenAPI document lead into. */
export type Faults = (value: unknown, schema: object, components?: object) => string[];

// Documents carry words of their own (x-…, components), which are no keywords.
const options = { strict: false, allErrors: true } as const;
const draft7 = new Ajv(options);
const draft2020 = new Ajv2020(options);

export const openrpcFaults: Faults = (value, schema) => faultsOf(draft7, value, schema);
export const openapiFaults: Faults = (value, schema, components = {}) => faultsOf(draft2020, value, { ...schema, components });

function faultsOf(ajv: Ajv | Ajv2020, value: unknown, schema: object): string[] {
  const check = ajv.compile(schema);
  if (check(value)) return [];
  return (check.errors ?? []).map(({ instancePath, message }) => `${instancePath}: ${message}`);
}
