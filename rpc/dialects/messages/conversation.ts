/** Messages of blocks -> messages of a chat: results of tools become messages of their own, thinking and calls members of their turn. */
import { z } from 'zod';
import { checkAt, NO_FILES, NO_IMAGES, refuse, unsupported } from '../chat/check.js';
import { type Block, type CountBody, contentSchema, type Message } from './schema.js';

type TextPart = { readonly type: 'text'; readonly text: string };
export type ChatMessage = Readonly<Record<string, unknown>> & { readonly role: string };

const textBlock = z.looseObject({ text: z.string() });
const thinkingBlock = z.looseObject({ thinking: z.string() });
const useBlock = z.looseObject({ id: z.string(), name: z.string(), input: z.record(z.string(), z.unknown()) });
const resultBlock = z.looseObject({ tool_use_id: z.string(), content: contentSchema.nullish() });

/** @throws InferdError invalid_params or unsupported, naming the block */
export function chatMessages({ system, messages }: Pick<CountBody, 'system' | 'messages'>): readonly ChatMessage[] {
  if (messages.at(-1)?.role === 'assistant') {
    unsupported(
      `messages[${messages.length - 1}]`,
      'the last message must be a user’s: beginning the answer for the model is not supported',
    );
  }
  const said = system === undefined || system === null || system === '' ? [] : [{ role: 'system', content: texts(system, 'system') }];
  return [...said, ...messages.flatMap((message, i) => turns(message, `messages[${i}].content`))];
}

function turns({ role, content }: Message, path: string): readonly ChatMessage[] {
  if (typeof content === 'string') return [{ role, content }];
  return role === 'assistant' ? [assistantTurn(content, path)] : userTurns(content, path);
}

/** Texts between results of tools are messages of their own, in the order in which they came. */
function userTurns(blocks: readonly Block[], path: string): readonly ChatMessage[] {
  const said: ChatMessage[] = [];
  let open: TextPart[] | null = null;
  for (const [i, block] of blocks.entries()) {
    const at = `${path}[${i}]`;
    if (block.type === 'tool_result') {
      const { tool_use_id: id, content } = checkAt(resultBlock, block, at);
      said.push({ role: 'tool', tool_call_id: id, content: texts(content ?? '', `${at}.content`) });
      open = null;
    } else {
      const part = textPart(block, at);
      if (open === null) {
        open = [];
        said.push({ role: 'user', content: open });
      }
      open.push(part);
    }
  }
  return said.length === 0 ? refuse(path, 'must not be empty') : said;
}

function assistantTurn(blocks: readonly Block[], path: string): ChatMessage {
  const thinking: string[] = [];
  const content: TextPart[] = [];
  const calls: object[] = [];
  for (const [i, block] of blocks.entries()) {
    const at = `${path}[${i}]`;
    if (block.type === 'thinking') thinking.push(checkAt(thinkingBlock, block, at).thinking);
    else if (block.type === 'tool_use') {
      const { id, name, input } = checkAt(useBlock, block, at);
      calls.push({ id, type: 'function', function: { name, arguments: input } });
    } else if (block.type !== 'redacted_thinking') content.push(textPart(block, at));
  }
  return {
    role: 'assistant',
    ...(content.length === 0 ? {} : { content }),
    ...(thinking.length === 0 ? {} : { reasoning_content: thinking.join('\n') }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

function texts(content: string | readonly Block[], path: string): string | readonly TextPart[] {
  return typeof content === 'string' ? content : content.map((block, i) => textPart(block, `${path}[${i}]`));
}

function textPart(block: Block, path: string): TextPart {
  if (block.type === 'text') return { type: 'text', text: checkAt(textBlock, block, path).text };
  if (block.type === 'image') unsupported(path, NO_IMAGES);
  if (block.type === 'document') unsupported(path, NO_FILES);
  return unsupported(path, `blocks of type ${JSON.stringify(block.type.slice(0, 64))} are not supported here`);
}
