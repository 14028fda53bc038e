/**
 * Which tools a request offers, and whether a call of them is forced. What needs a constraint on the answer (a forced call, arguments
 * that must fit their schema) is refused here and nowhere else, as long as the engine takes no constraints.
 */
import { InferdError, invalidParams } from '../../actors/messages/errors.js';
import type { ToolChoice } from '../../actors/messages/requests.js';
import type { ChatBody } from '../schemas/chat.js';

type Tools = NonNullable<ChatBody['tools']>;

export interface ToolOffer {
  /** That the template shows; empty for none. */
  readonly tools: Tools;
  /** Null: the model chooses. */
  readonly choice: ToolChoice | null;
}

/** True once the tokenizer hands the grammar of calls (actors/tokenizer/answer/tool-grammar.ts) to the engine. */
const canConstrain = false;

const nothing: ToolOffer = { tools: [], choice: null };

/** @throws InferdError invalid_params for a choice that is not offered, unsupported where a constraint would be needed */
export function toolOffer(body: ChatBody): ToolOffer {
  if (body.tool_choice === 'none') return nothing;
  const tools = body.tools ?? [];
  const choice = toolChoice(body.tool_choice ?? 'auto', tools);
  if (!canConstrain) refuseConstraints(tools, choice);
  return { tools, choice };
}

function toolChoice(asked: Exclude<ChatBody['tool_choice'], 'none' | null | undefined>, tools: Tools): ToolChoice | null {
  if (asked === 'auto') return null;
  if (tools.length === 0) throw invalidParams([{ path: 'tool_choice', message: 'needs tools to choose from' }]);
  if (asked === 'required') return asked;
  const { name } = asked.function;
  if (tools.some((tool) => tool.function.name === name)) return { name };
  throw invalidParams([{ path: 'tool_choice.function.name', message: 'must be the name of one of the tools' }]);
}

function refuseConstraints(tools: Tools, choice: ToolChoice | null): void {
  if (choice !== null) throw new InferdError('unsupported', 'tool_choice may be "auto" or "none": a call cannot be forced yet');
  const strict = tools.find((tool) => tool.function.strict === true);
  if (strict === undefined) return;
  const { name } = strict.function;
  throw new InferdError('unsupported', `The tool ${name} is strict: arguments cannot be held to their schema yet; leave strict out`);
}
