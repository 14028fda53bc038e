/**
 * Where in the params of a method, or in the body of a face, the texts and token ids of a prompt stand. Data of cut-texts.ts and pack-ids.ts,
 * by the name of the method or face; what is missing here is carried whole.
 *
 * A path names members with dots between them; `[]` is each element of a list. What an assistant said is passed over: templates read more
 * than the whole of it (what it reasoned is left out).
 */

export interface PromptPlaces {
  /** Where a text is a prompt as it is. */
  readonly raw: readonly string[];
  /** Where it stands in a chat template, which puts a text in whole or trims its ends. */
  readonly inTemplate: readonly string[];
  /**
   * What a prompt with more tokens than the model takes ends with: "limit", it is refused before it is encoded; "tokenizer", only the
   * tokenizer may refuse it, and for a raw text the method says so itself (CallContext.refused).
   */
  readonly refusedBy: 'limit' | 'tokenizer';
  /** Names of lists of token ids, or of lists of such lists; none when absent. */
  readonly ids?: readonly string[];
}

const messages = ['messages[].content', 'messages[].content[].text'];
const blocks = [...messages, 'messages[].content[].content', 'messages[].content[].content[].text', 'system', 'system[].text'];
const items = ['input', 'input[].content', 'input[].content[].text', 'input[].output', 'input[].output[].text'];

const prompts = (raw: readonly string[]): PromptPlaces => ({ raw, inTemplate: [], refusedBy: 'limit' });
const chats = (inTemplate: readonly string[]): PromptPlaces => ({ raw: [], inTemplate, refusedBy: 'limit' });

export const promptPlaces: ReadonlyMap<string, PromptPlaces> = new Map<string, PromptPlaces>([
  ['completions.create', { ...prompts(['prompt', 'prompt[]']), ids: ['prompt'] }],
  ['embeddings.create', { ...prompts(['input', 'input[]']), ids: ['input'] }],
  ['chat.completions.create', chats(messages)],
  ['tokenize', { raw: ['text', 'prompt'], inTemplate: messages, refusedBy: 'tokenizer' }],
  ['detokenize', { raw: [], inTemplate: [], refusedBy: 'tokenizer', ids: ['ids', 'tokens'] }],
  ['messages.create', chats(blocks)],
  ['messages.count_tokens', { raw: [], inTemplate: blocks, refusedBy: 'tokenizer' }],
  ['responses.create', chats(['instructions', ...items])],
  ['ollama.chat', chats(messages)],
  ['ollama.generate', chats(['prompt', 'system'])],
  ['ollama.embed', prompts(['input', 'input[]'])],
  ['ollama.embeddings', prompts(['prompt'])],
]);
