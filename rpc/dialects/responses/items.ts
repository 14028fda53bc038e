/**
 * The input of a response -> messages of a chat. What an assistant did in one turn stands there as several items (reasoning, message,
 * calls); in a chat they are one message, as the model's template wants them.
 */
import { z } from 'zod';
import { checkAt, NO_AUDIO, NO_FILES, NO_IMAGES, refuse, unsupported } from '../chat/check.js';
import type { ResponsesBody } from './schema.js';

export interface ChatMessage {
  readonly role: string;
  content?: string | readonly { readonly type: 'text'; readonly text: string }[] | null;
  reasoning_content?: string;
  tool_calls?: object[];
  readonly tool_call_id?: string;
}

type Item = Exclude<ResponsesBody['input'], string>[number];

const roles = z.enum(['user', 'assistant', 'system', 'developer'], { error: 'must be user, assistant, system or developer' });
const callItem = z.looseObject({ call_id: z.string(), name: z.string(), arguments: z.string().nullish() });
const outputItem = z.looseObject({ call_id: z.string(), output: z.unknown() });
const textPart = z.looseObject({ type: z.string(), text: z.string().nullish(), refusal: z.string().nullish() });
const contentSchema = z.union([z.string(), z.array(textPart)], { error: 'must be a text or a list of parts {type, text}' });

/** @throws InferdError invalid_params or unsupported, naming the item */
export function chatMessages({ input, instructions }: Pick<ResponsesBody, 'input' | 'instructions'>): readonly ChatMessage[] {
  const turns = new Turns();
  if (typeof instructions === 'string' && instructions !== '') turns.say({ role: 'system', content: instructions });
  if (typeof input === 'string') turns.say({ role: 'user', content: input });
  else for (const [i, item] of input.entries()) addItem(turns, item, `input[${i}]`);
  return turns.messages;
}

function addItem(turns: Turns, item: Item, path: string): void {
  const type = item.type ?? (item.role === undefined ? '' : 'message');
  if (type === 'message') addMessage(turns, item, path);
  else if (type === 'function_call') {
    const { call_id: id, name, arguments: args } = checkAt(callItem, item, path);
    turns.call({ id, type: 'function', function: { name, arguments: args ?? '' } });
  } else if (type === 'function_call_output') {
    const { call_id: id, output } = checkAt(outputItem, item, path);
    turns.say({ role: 'tool', content: contentOf(output, `${path}.output`), tool_call_id: id });
  } else if (type === 'reasoning') turns.reason(reasoningOf(item, path));
  else if (type === '') refuse(`${path}.type`, 'is required');
  else if (type === 'item_reference') unsupported(path, 'item_reference is not supported: nothing is stored; send the item');
  else unsupported(path, `items of type ${JSON.stringify(type.slice(0, 64))} are not supported`);
}

function addMessage(turns: Turns, item: Item, path: string): void {
  const role = checkAt(roles, item.role, `${path}.role`);
  const content = contentOf(item['content'], `${path}.content`);
  // Templates know no developer; what OpenAI's models are told by one, others are by the system.
  if (role === 'assistant') turns.answer(content);
  else turns.say({ role: role === 'developer' ? 'system' : role, content });
}

function contentOf(value: unknown, path: string): NonNullable<ChatMessage['content']> {
  const content = checkAt(contentSchema, value, path);
  if (typeof content === 'string') return content;
  return content.map(({ type, text, refusal }, i) => {
    const at = `${path}[${i}]`;
    if (type === 'input_image') unsupported(at, NO_IMAGES);
    if (type === 'input_audio') unsupported(at, NO_AUDIO);
    if (type === 'input_file') unsupported(at, NO_FILES);
    if (!['input_text', 'output_text', 'text', 'refusal'].includes(type)) {
      unsupported(at, `parts of type ${JSON.stringify(type.slice(0, 64))} are not supported`);
    }
    return { type: 'text' as const, text: (type === 'refusal' ? refusal : text) ?? refuse(`${at}.text`, 'is required') };
  });
}

/** What the model wrote; where a client kept only a summary, that. What another server encrypted is not known here. */
function reasoningOf(item: Item, path: string): string {
  const parts = z.array(z.looseObject({ text: z.string() })).nullish();
  const content = checkAt(parts, item['content'], `${path}.content`) ?? [];
  const summary = checkAt(parts, item['summary'], `${path}.summary`) ?? [];
  return (content.length > 0 ? content : summary).map(({ text }) => text).join('\n');
}

/** Puts together what belongs to one turn of the assistant. */
class Turns {
  readonly messages: ChatMessage[] = [];
  /** The assistant's turn that later items may add to. */
  #turn: ChatMessage | null = null;

  say(message: ChatMessage): void {
    this.#turn = null;
    this.messages.push(message);
  }

  reason(text: string): void {
    if (text !== '') this.#open().reasoning_content = text;
  }

  answer(content: NonNullable<ChatMessage['content']>): void {
    const turn = this.#turn;
    const fresh = turn !== null && turn.content === undefined && turn.tool_calls === undefined;
    (fresh ? turn : this.#open()).content = content;
  }

  call(call: object): void {
    const turn = this.#turn ?? this.#open();
    turn.tool_calls = [...(turn.tool_calls ?? []), call];
  }

  #open(): ChatMessage {
    this.#turn = { role: 'assistant' };
    this.messages.push(this.#turn);
    return this.#turn;
  }
}
