/** The grammar that the answer to a chat prompt is held to because of its tools: tool-grammar.ts for a prompt as the front has checked it. */
import type { PromptInput } from '../../messages/requests.js';
import type { AnswerFormat } from './answers.js';
import { CallGrammarError, type OfferedTool, type SchemaGrammar, toolGrammar } from './tool-grammar.js';

/** What a chat prompt says of its tools. */
export type ToolsOffered = Pick<Extract<PromptInput, { kind: 'chat' }>, 'tools' | 'toolChoice' | 'parallelToolCalls'>;

/** A tool in OpenAI's shape. */
interface ToolBody {
  readonly function: { readonly name: string; readonly parameters?: unknown; readonly strict?: boolean | null };
}

/** Whether the answer to a prompt is held to calls that its tools ask for: one is forced, or a tool is strict. Costs next to nothing. */
export function constrainsCalls(prompt: ToolsOffered): boolean {
  const tools = (prompt.tools ?? []) as readonly ToolBody[]; // proof: the front has checked them
  return tools.length > 0 && (prompt.toolChoice !== undefined || tools.some((tool) => tool.function.strict === true));
}

/**
 * GBNF, or null when nothing is constrained.
 * @param opened the prompt ends inside the reasoning.
 * @throws CallGrammarError with one sentence where the model's format cannot be constrained; and what `schemaGrammar` throws
 */
export function toolConstraint(
  prompt: ToolsOffered,
  { calls: format, reasoning }: Pick<AnswerFormat, 'calls' | 'reasoning'>,
  opened: boolean,
  schemaGrammar: SchemaGrammar,
): string | null {
  if (!constrainsCalls(prompt)) return null;
  const tools = (prompt.tools ?? []).map((tool) => offered(tool as ToolBody)); // proof: the front has checked them
  const choice = prompt.toolChoice ?? 'auto';
  if (format === null)
    throw new CallGrammarError('Calls of tools are not read (inference.tool_call_parser = "none"), so they cannot be constrained');
  return toolGrammar({
    format,
    tools,
    choice,
    parallel: prompt.parallelToolCalls ?? true,
    reasoning: reasoning === null ? null : { format: reasoning, opened },
    schemaGrammar,
  });
}

function offered({ function: { name, parameters, strict } }: ToolBody): OfferedTool {
  return { name, parameters: parameters ?? undefined, strict: strict === true };
}
