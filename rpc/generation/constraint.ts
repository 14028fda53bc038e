/**
 * What form the answer must have, from the fields of a body: one constraint at most, and none beside parameters that could end or
 * stretch the answer against it. Whether it can be enforced is found out where it is compiled, in a tokenizer.
 */
import type { AskedConstraint } from '../../actors/messages/constraint.js';
import type { ConstraintBody } from '../schemas/constraint.js';

type Refuse = (path: string, message: string) => void;

/** `refuse` is told what is wrong; the answer is then of no use. */
export function constraintOf(body: ConstraintBody, refuse: Refuse): AskedConstraint | null {
  const asked = [...responseFormat(body, refuse), ...guided(body, refuse)];
  const [first, second] = asked;
  if (second !== undefined) refuse(second.param, `only one constraint is allowed, and ${first?.param} is one already`);
  return first ?? null;
}

/** Tokens that must come whatever the constraint says would break it. */
export function refuseBesideConstraint(
  { min_tokens, ignore_eos }: { readonly min_tokens: number; readonly ignore_eos: boolean },
  refuse: Refuse,
): void {
  const why = 'cannot be combined with a constraint on the form of the answer, which ends when it is complete';
  if (min_tokens > 0) refuse('min_tokens', why);
  if (ignore_eos) refuse('ignore_eos', why);
}

function responseFormat({ response_format: format }: ConstraintBody, refuse: Refuse): AskedConstraint[] {
  if (format === undefined || format === null || format.type === 'text') return [];
  if (format.type === 'json_object') return [{ param: 'response_format', constraint: { kind: 'json_object' } }];
  return schemaAt('response_format.json_schema.schema', format.json_schema.schema, refuse);
}

function guided(body: ConstraintBody, refuse: Refuse): AskedConstraint[] {
  const { json, regex, choice, grammar, json_object } = body.structured_outputs ?? {};
  return [
    ...schemaAt('guided_json', body.guided_json, refuse),
    ...regexAt('guided_regex', body.guided_regex),
    ...choiceAt('guided_choice', body.guided_choice),
    ...grammarAt('guided_grammar', body.guided_grammar),
    ...schemaAt('structured_outputs.json', json, refuse),
    ...regexAt('structured_outputs.regex', regex),
    ...choiceAt('structured_outputs.choice', choice),
    ...grammarAt('structured_outputs.grammar', grammar),
    ...(json_object === true ? [{ param: 'structured_outputs.json_object', constraint: { kind: 'json_object' } as const }] : []),
  ];
}

/** Longer texts are first read by a tokenizer, behind its check of their size: here one of megabytes would hold up everybody. */
const maxTextReadHere = 64 * 1024;

function schemaAt(param: string, given: unknown, refuse: Refuse): AskedConstraint[] {
  if (given === undefined || given === null) return [];
  const text = typeof given === 'string' ? given : JSON.stringify(given);
  if (typeof given === 'string' && text.length <= maxTextReadHere && !isJson(text)) {
    refuse(param, 'must be a JSON schema: the text is not JSON');
    return [];
  }
  return [{ param, constraint: { kind: 'json_text', text } }];
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const regexAt = (param: string, pattern: string | null | undefined): AskedConstraint[] =>
  pattern === undefined || pattern === null ? [] : [{ param, constraint: { kind: 'regex', pattern } }];

const choiceAt = (param: string, choices: readonly string[] | null | undefined): AskedConstraint[] =>
  choices === undefined || choices === null ? [] : [{ param, constraint: { kind: 'choice', choices } }];

const grammarAt = (param: string, text: string | null | undefined): AskedConstraint[] =>
  text === undefined || text === null ? [] : [{ param, constraint: { kind: 'grammar', text } }];
