/**
 * Where in the params of a method, or in the body of a face, the texts of a prompt stand. Data of cut-texts.ts, by the name of the method
 * or face; what is missing here is carried whole.
 *
 * A path names members with dots between them; `[]` is each element of a list. What an assistant said is passed over: templates read more
 * than the whole of it (what it reasoned is left out).
 */

export interface PromptPlaces {
  readonly paths: readonly string[];
  /** They stand in a chat template, which puts a text in whole or trims its ends. */
  readonly inTemplate: boolean;
  /** A prompt with more tokens than the model takes is refused before it is encoded. */
  readonly counted: boolean;
}

const messages = ['messages[].content', 'messages[].content[].text'];
const blocks = [...messages, 'messages[].content[].content', 'messages[].content[].content[].text', 'system', 'system[].text'];
const items = ['input', 'input[].content', 'input[].content[].text', 'input[].output', 'input[].output[].text'];

const raw = { inTemplate: false, counted: true };
const chat = { inTemplate: true, counted: true };
/** What only becomes ids may be longer than any prompt. */
const notCounted = { inTemplate: true, counted: false };

export const promptPlaces: ReadonlyMap<string, PromptPlaces> = new Map([
  ['completions.create', { ...raw, paths: ['prompt', 'prompt[]'] }],
  ['embeddings.create', { ...raw, paths: ['input', 'input[]'] }],
  ['chat.completions.create', { ...chat, paths: messages }],
  ['tokenize', { ...notCounted, paths: ['text', 'prompt', ...messages] }],
  ['messages.create', { ...chat, paths: blocks }],
  ['messages.count_tokens', { ...notCounted, paths: blocks }],
  ['responses.create', { ...chat, paths: ['instructions', ...items] }],
  ['ollama.chat', { ...chat, paths: messages }],
  ['ollama.generate', { ...chat, paths: ['prompt', 'system'] }],
  ['ollama.embed', { ...raw, paths: ['input', 'input[]'] }],
  ['ollama.embeddings', { ...raw, paths: ['prompt'] }],
]);
