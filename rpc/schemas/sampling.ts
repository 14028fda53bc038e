/**
 * Sampling parameters of a request: one field per descriptor of actors/messages/sampling.ts, so a new parameter needs no edit here.
 */
import { z } from 'zod';
import { type SamplingDescriptor, type SamplingParamName, samplingParams } from '../../actors/messages/sampling.js';

type Field = z.ZodOptional<z.ZodNullable<z.ZodNumber>>;

const names = Object.keys(samplingParams) as SamplingParamName[];

/** Fields for z.object; null counts as absent. */
export function samplingFields(): { [K in SamplingParamName]: Field } {
  const field = (name: SamplingParamName): Field => {
    const d: SamplingDescriptor = samplingParams[name];
    const range = { error: `must be ${d.kind === 'int' ? 'an integer' : 'a number'} from ${d.min} to ${d.max}` };
    const base = d.kind === 'int' ? z.int(range) : z.number(range);
    return base.min(d.min, range).max(d.max, range).nullish().describe(d.doc);
  };
  return Object.fromEntries(names.map((name) => [name, field(name)])) as { [K in SamplingParamName]: Field }; // proof: names has every key
}

type Values = { readonly [K in SamplingParamName]: number };
type Recommended = { readonly [K in SamplingParamName]?: number };

/** What a request that says nothing gets: the model's recommendation (brought into range), else the table's default. By model. */
const unsaid = new WeakMap<Recommended, Values>();

function unsaidValues(model: Recommended): Values {
  const value = (name: SamplingParamName): number => {
    const d: SamplingDescriptor = samplingParams[name];
    const recommended = model[name];
    return recommended === undefined ? d.default : Math.min(Math.max(recommended, d.min), d.max);
  };
  return Object.fromEntries(names.map((name) => [name, value(name)])) as Values; // proof: names has every key
}

/** Resolves each parameter: the request, else what a request gets that says nothing. `model` is the same object for each request. */
export function samplingValues(request: { readonly [K in SamplingParamName]?: number | null | undefined }, model: Recommended): Values {
  let base = unsaid.get(model);
  if (base === undefined) {
    base = unsaidValues(model);
    unsaid.set(model, base);
  }
  const values: { -readonly [K in SamplingParamName]: number } = { ...base };
  for (const name of names) values[name] = request[name] ?? values[name];
  return values;
}
