/** The validator that answers are judged by: ajv 8 with its formats, by the draft that the schema is of. */
import { Ajv } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { type ConstraintLimits, constraintLimits } from '../../../actors/grammar/index.js';
import { testConfig } from '../test-config.js';
import { judgeable } from './sound-regexp.js';

const options = { strict: false, logger: false, allErrors: false } as const;

/** A list of schemas in `items` and `dependencies` are of draft 7; everything else is read as draft 2020-12. */
export function validatorOf(schema: unknown): (value: unknown) => boolean {
  const text = JSON.stringify(schema);
  const old = /"items":\[|"dependencies":/.test(text);
  const ajv = old ? new Ajv(options) : new Ajv2020(options);
  formats.default(ajv);
  const validate = ajv.compile(schema as object);
  return (value) => !judgeable(JSON.stringify(value)) || validate(value);
}

/** The limits of a daemon without a configuration. */
export const defaultLimits: ConstraintLimits = constraintLimits(testConfig().structured_output);
