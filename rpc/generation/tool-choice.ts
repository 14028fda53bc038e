/**
 * Which tools a request offers, and whether a call of them is forced. The grammar of a forced call, and of arguments that must fit their
 * schema, is made where the model's template is known (actors/tokenizer/constrain).
 */
import { invalidParams } from '../../actors/messages/errors.js';
import type { ToolChoice } from '../../actors/messages/requests.js';
import type { ChatBody } from '../schemas/chat.js';

type Tools = NonNullable<ChatBody['tools']>;

export interface ToolOffer {
  /** That the template shows; empty for none. */
  readonly tools: Tools;
  /** Null: the model chooses. */
  readonly choice: ToolChoice | null;
  /** The answer is held to a form by them: a call is forced, or a tool is strict. */
  readonly constrains: boolean;
}

const nothing: ToolOffer = { tools: [], choice: null, constrains: false };

/** @throws InferdError invalid_params for a choice that is not offered */
export function toolOffer(body: ChatBody): ToolOffer {
  if (body.tool_choice === 'none') return nothing;
  const tools = body.tools ?? [];
  const choice = toolChoice(body.tool_choice ?? 'auto', tools);
  const constrains = choice !== null || tools.some((tool) => tool.function.strict === true);
  if (constrains) refuseHalfPairs(tools);
  return { tools, choice, constrains };
}

/** On its way to another thread half of a pair would become other characters, and a call one that the schema does not allow. */
function refuseHalfPairs(tools: Tools): void {
  const at = tools.findIndex((tool) => holdsHalfPair(tool.function.parameters));
  if (at < 0) return;
  throw invalidParams([{ path: `tools[${at}].function.parameters`, message: 'holds half of a surrogate pair, which is not supported' }]);
}

/** Depth is bounded by the decoder. */
function holdsHalfPair(value: unknown): boolean {
  if (typeof value === 'string') return !value.isWellFormed();
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([key, member]) => !key.isWellFormed() || holdsHalfPair(member));
}

function toolChoice(asked: Exclude<ChatBody['tool_choice'], 'none' | null | undefined>, tools: Tools): ToolChoice | null {
  if (asked === 'auto') return null;
  if (tools.length === 0) throw invalidParams([{ path: 'tool_choice', message: 'needs tools to choose from' }]);
  if (asked === 'required') return asked;
  const { name } = asked.function;
  if (tools.some((tool) => tool.function.name === name)) return { name };
  throw invalidParams([{ path: 'tool_choice.function.name', message: 'must be the name of one of the tools' }]);
}
