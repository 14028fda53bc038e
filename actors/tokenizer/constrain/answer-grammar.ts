/**
 * The grammar that the answer to one request is held to: of its constraint, of the calls that it forces or whose arguments are strict, with
 * the model's reasoning before either. Pure. A tokenizer's thread.
 */
import { ConstraintError, type ConstraintLimits, constraintGrammar } from '../../grammar/index.js';
import type { Constraint } from '../../messages/constraint.js';
import type { PromptInput } from '../../messages/requests.js';
import type { AnswerFormat } from '../answer/answers.js';
import { toolConstraint } from '../answer/tool-constraint.js';
import { CallGrammarError, reasoningFirst } from '../answer/tool-grammar.js';

export interface AnswerGrammar {
  /** GBNF. */
  readonly text: string;
  readonly extensions: boolean;
  /** Control tokens that it spells: markers of calls and of reasoning. All others are no text. */
  readonly spelled: readonly number[];
}

/** How the model writes calls and reasoning, and whether the prompt ends inside the reasoning. */
export interface AnswerStyle {
  readonly format: AnswerFormat;
  readonly opened: boolean;
}

/**
 * Null when every answer will do.
 * @param style null for a prompt that is no chat
 * @throws ConstraintError with one sentence
 */
export function answerGrammar(
  prompt: PromptInput,
  constraint: Constraint | null,
  style: AnswerStyle | null,
  limits: ConstraintLimits,
): AnswerGrammar | null {
  const calls = prompt.kind === 'chat' && style !== null ? callGrammar(prompt, style, limits) : null;
  if (calls !== null && constraint !== null)
    throw new ConstraintError('A forced or strict call of a tool is a constraint already, and only one is allowed');
  if (calls !== null || constraint === null) return calls;
  const reasoning = style?.format.reasoning ?? null;
  if (style === null || reasoning === null || constraint.kind === 'grammar')
    return { ...constraintGrammar(constraint, limits), spelled: [] };
  const form = constraintGrammar(constraint, limits, { rootName: 'form' });
  const root = `root ::= ${reasoningFirst({ format: reasoning, opened: style.opened })}form`;
  return { text: `${root}\n${form.text}`, extensions: form.extensions, spelled: [...style.format.units.keys()] };
}

type ChatPrompt = Extract<PromptInput, { kind: 'chat' }>;

function callGrammar(prompt: ChatPrompt, { format, opened }: AnswerStyle, limits: ConstraintLimits): AnswerGrammar | null {
  let extensions = false;
  // One deadline for all tools: a request may bring thousands of them.
  const endMs = performance.now() + limits.deadlineMs;
  const schemaRules = (schema: unknown, rootName: string): string => {
    const made = constraintGrammar({ kind: 'json_schema', schema }, limits, { rootName, endMs });
    extensions ||= made.extensions;
    return made.text;
  };
  try {
    const text = toolConstraint(prompt, format, opened, schemaRules);
    return text === null ? null : { text, extensions, spelled: [...format.units.keys()] };
  } catch (error) {
    throw error instanceof CallGrammarError ? new ConstraintError(error.message) : error;
  }
}
