/**
 * Which tools a request offers, and whether a call of them is forced. What needs a constraint on the answer (a forced call, arguments
 * that must fit their schema) is refused here and nowhere else, as long as the engine takes no constraints.
 */
import { InferdError } from '../../actors/messages/errors.js';
import type { ChatBody } from '../schemas/chat.js';

type Tools = NonNullable<ChatBody['tools']>;

/** Tools that the template shows, empty for none. @throws InferdError unsupported where a constraint would be needed */
export function offeredTools(body: ChatBody): Tools {
  const choice = body.tool_choice ?? 'auto';
  if (choice === 'none') return [];
  const tools = body.tools ?? [];
  if (choice !== 'auto') throw new InferdError('unsupported', 'tool_choice may be "auto" or "none": a call cannot be forced yet');
  const strict = tools.find((tool) => tool.function['strict'] === true);
  if (strict !== undefined) {
    const name = strict.function.name;
    throw new InferdError('unsupported', `The tool ${name} is strict: arguments cannot be held to their schema yet; leave strict out`);
  }
  return tools;
}
