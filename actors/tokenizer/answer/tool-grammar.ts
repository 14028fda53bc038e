/**
 * The grammar (GBNF) of answers whose calls are constrained. Pure; for whoever constrains the engine.
 *
 *   required      calls of the tools offered, and nothing else
 *   one by name   one call of it, and nothing else
 *   auto          any text, and calls whose arguments fit the schema where the tool is strict; of other tools any JSON object
 *
 * With `auto`, a marker decides: text cannot contain it, and what follows it is a call. Where a format has no marker, the first character
 * does: an answer that begins with a brace is calls, any other is text. Reasoning may, or where the prompt has opened it must, come first.
 * Markers that are control tokens of the vocabulary are spelled here as text: the engine has to know them by it.
 */
import { literal, withoutMarker } from './avoid-marker.js';
import type { AnswerChannels, CallFormat } from './call-format.js';
import type { ReasoningFormat } from './reasoning-reader.js';

/** Calls cannot be constrained, in one sentence. */
export class CallGrammarError extends Error {
  override readonly name = 'CallGrammarError';
}

/** The rules of a JSON Schema in GBNF: one named `root`, and others whose names begin with it. */
export type SchemaGrammar = (schema: unknown, root: string) => string;

export interface OfferedTool {
  readonly name: string;
  /** JSON Schema of the arguments; undefined: any. */
  readonly parameters?: unknown;
  readonly strict: boolean;
}

export interface ToolGrammarOptions {
  readonly format: CallFormat;
  readonly tools: readonly OfferedTool[];
  readonly choice: 'auto' | 'required' | { readonly name: string };
  /** Several calls in one answer. */
  readonly parallel: boolean;
  /** Null: the model does not reason. `opened`: the prompt ends inside the reasoning. */
  readonly reasoning: { readonly format: ReasoningFormat; readonly opened: boolean } | null;
  readonly schemaGrammar: SchemaGrammar;
}

const anyArguments = { type: 'object' };

/**
 * The schema of a call's arguments, which are an object even where `parameters` would allow something else: `{}` stands for a tool without
 * any, and a call with other arguments would not be read as one. What the schema refers to in itself stays where it is.
 */
function argumentsOf(parameters: unknown): unknown {
  if (parameters === undefined) return anyArguments;
  const schema = parameters as { readonly allOf?: unknown }; // proof: the front has checked that it is an object
  if (schema.allOf !== undefined && !Array.isArray(schema.allOf)) return schema; // malformed, which is said of it
  return { ...schema, allOf: [...(schema.allOf ?? []), anyArguments] };
}

/**
 * Null when nothing is constrained: `auto` without a strict tool.
 * @throws CallGrammarError when the format cannot be constrained, or no tool has the name that is asked for; and what `schemaGrammar` throws
 */
export function toolGrammar(options: ToolGrammarOptions): string | null {
  const { format, choice, schemaGrammar } = options;
  if (choice === 'auto' && !options.tools.some((tool) => tool.strict)) return null;
  const { shape } = format;
  if (shape === null) throw new CallGrammarError(`Calls in the format ${format.name} cannot be constrained: their arguments are not JSON`);
  const tools = typeof choice === 'object' ? options.tools.filter(({ name }) => name === choice.name) : options.tools;
  if (tools.length === 0) throw new CallGrammarError('There is no such tool to call');
  const parallel = options.parallel && typeof choice !== 'object';

  const rules = tools.flatMap(({ name, parameters, strict }, i) => {
    const args = `tool-${i}-arguments`;
    const constrained = strict || choice !== 'auto';
    return [`tool-${i} ::= ${shape.call(name, args)}`, schemaGrammar(constrained ? argumentsOf(parameters) : anyArguments, args)];
  });
  const forced = shape.calls('tool-call', parallel);
  const answer =
    choice !== 'auto'
      ? forced
      : format.channels === undefined
        ? autoAnswer(shape, parallel)
        : `(${finalText(format.channels)} | ${forced})`;
  return [
    `root ::= ${format.channels?.first ?? ''}${options.reasoning === null ? '' : reasoningFirst(options.reasoning)}${answer}`,
    `tool-call ::= ${tools.map((_, i) => `tool-${i}`).join(' | ')}`,
    ...rules,
    'tool-space ::= [ \\t\\n]{0,16}',
    '',
  ].join('\n');
}

const finalText = ({ final, text }: AnswerChannels): string => `${final}${text}`;

function autoAnswer({ marker, calls }: NonNullable<CallFormat['shape']>, parallel: boolean): string {
  if (marker === null) return `tool-space (${calls('tool-call', parallel)} | [^{ \\t\\n] ([^{] | "{")*)?`;
  const text = withoutMarker(marker.text);
  const several = parallel && marker.before === 'each' ? '*' : '?';
  return `${text} (${calls('tool-call', parallel && marker.before === 'all')} ${text})${several}`;
}

/** The reasoning that may come before an answer, or must, with a space behind it. */
export function reasoningFirst({ format: { start, end }, opened }: NonNullable<ToolGrammarOptions['reasoning']>): string {
  const space = '[ \\t\\n]{0,16}';
  const inside = `${withoutMarker(end.text)} ${literal(end.text)} ${space}`;
  return opened ? `${inside} ` : `(${space} ${literal(start.text)} ${inside})? `;
}
