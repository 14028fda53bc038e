/**
 * The grammar that the answer to one request is held to: of its constraint, or of the calls that it forces or whose arguments are strict,
 * with the model's reasoning before either. Pure.
 */
import { ConstraintError, type ConstraintLimits, constraintGrammar } from '../../grammar/index.js';
import type { Constraint } from '../../messages/constraint.js';
import type { AnswerFormat } from '../answer/answers.js';
import { type ToolsOffered, toolConstraint } from '../answer/tool-constraint.js';
import { CallGrammarError, reasoningFirst } from '../answer/tool-grammar.js';

export interface AnswerGrammar {
  /** GBNF. */
  readonly text: string;
  readonly extensions: boolean;
  /** Whether it spells the markers of calls and reasoning, which may be control tokens. All others are no text. */
  readonly markers: boolean;
}

/** How the model writes calls and reasoning, and whether the prompt ends inside the reasoning. */
export interface AnswerStyle extends Pick<AnswerFormat, 'calls' | 'reasoning'> {
  readonly opened: boolean;
}

/** What is asked of an answer. `chat`: null for a prompt that is no chat. */
export interface Asked {
  readonly constraint: Constraint | null;
  readonly chat: { readonly tools: ToolsOffered; readonly style: AnswerStyle } | null;
}

/** Null when every answer will do. @throws ConstraintError with one sentence */
export function answerGrammar({ constraint, chat }: Asked, limits: ConstraintLimits): AnswerGrammar | null {
  const calls = chat === null ? null : callGrammar(chat.tools, chat.style, limits);
  if (calls !== null && constraint !== null)
    throw new ConstraintError('A forced or strict call of a tool is a constraint already, and only one is allowed.');
  if (calls !== null || constraint === null) return calls;
  const reasoning = chat?.style.reasoning ?? null;
  const channels = chat?.style.calls?.channels ?? null;
  if (chat === null || (reasoning === null && channels === null) || constraint.kind === 'grammar')
    return { ...constraintGrammar(constraint, limits), markers: false };
  const form = constraintGrammar(constraint, limits, { rootName: 'form' });
  const first = channels === null ? '' : channels.first + channels.final;
  const thoughts = reasoning === null ? '' : reasoningFirst({ format: reasoning, opened: chat.style.opened });
  const root = `root ::= ${first}${thoughts}form`;
  return { text: `${root}\n${form.text}`, extensions: form.extensions, markers: true };
}

function callGrammar(tools: ToolsOffered, style: AnswerStyle, limits: ConstraintLimits): AnswerGrammar | null {
  let extensions = false;
  // One deadline for all tools: a request may bring thousands of them.
  const endMs = performance.now() + limits.deadlineMs;
  const schemaRules = (schema: unknown, rootName: string): string => {
    const made = constraintGrammar({ kind: 'json_schema', schema }, limits, { rootName, endMs });
    extensions ||= made.extensions;
    return made.text;
  };
  try {
    const text = toolConstraint(tools, style, style.opened, schemaRules);
    return text === null ? null : { text, extensions, markers: true };
  } catch (error) {
    throw error instanceof CallGrammarError ? new ConstraintError(`${error.message}.`) : error;
  }
}
