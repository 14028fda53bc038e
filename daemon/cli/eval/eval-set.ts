/**
 * Reads an evaluation set: JSON lines with `messages`, `want`, `task`, and optionally `tools` and `got` (what another implementation
 * answered). Also turns an answer into the text that is compared. Pure but for reading the file.
 */
import { readFileSync, statSync } from 'node:fs';
import { CliError, EXIT } from '../verb.js';

export interface EvalCase {
  /** Line in the file, from 1. */
  readonly line: number;
  readonly task: string;
  readonly messages: readonly Readonly<Record<string, unknown>>[];
  readonly tools: readonly unknown[] | null;
  readonly want: string;
  readonly got: string | null;
}

const maxFileBytes = 256 * 2 ** 20;

/** @throws CliError 66 when the file is missing, 65 with the line when it holds something else. */
export function readEvalSet(file: string): readonly EvalCase[] {
  let text: string;
  try {
    if (!statSync(file).isFile()) throw new CliError(`${file} is not a file; give a JSONL file with messages, want and task`, EXIT.missing);
    if (statSync(file).size > maxFileBytes) throw new CliError(`${file} is larger than ${maxFileBytes} bytes; split it`, EXIT.badData);
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError(
      `${file} cannot be read (${(error as NodeJS.ErrnoException).code}); give the path of a JSONL file`,
      EXIT.missing,
      error,
    );
  }
  const cases = text.split('\n').flatMap((content, i) => (content.trim() === '' ? [] : [parseCase(content, i + 1, file)]));
  if (cases.length === 0) throw new CliError(`${file} holds no cases; expected one JSON object a line`, EXIT.badData);
  return cases;
}

function parseCase(content: string, line: number, file: string): EvalCase {
  const bad = (what: string): CliError => new CliError(`${file}:${line}: ${what}`, EXIT.badData);
  let data: unknown;
  try {
    data = JSON.parse(content);
  } catch {
    throw bad('the line is not valid JSON; expected one JSON object a line');
  }
  if (typeof data !== 'object' || data === null || Array.isArray(data)) throw bad('expected a JSON object with messages, want and task');
  const { task = 'all', messages, tools = null, want, got = null } = data as Record<string, unknown>;
  if (typeof want !== 'string') throw bad('"want" must be a string, the wanted answer');
  if (typeof task !== 'string' || task === '') throw bad('"task" must be a string, the name to count under');
  if (!Array.isArray(messages) || messages.length === 0 || !messages.every((m) => typeof m === 'object' && m !== null))
    throw bad('"messages" must be a list of chat messages');
  if (tools !== null && !Array.isArray(tools)) throw bad('"tools" must be a list');
  if (got !== null && typeof got !== 'string') throw bad('"got" must be a string');
  return { line, task, messages: messages as Record<string, unknown>[], tools, want, got };
}

/** The message of an answer, as far as it is compared. */
export interface AnswerMessage {
  readonly content?: string | null | undefined;
  readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: string } }[] | undefined;
}

/**
 * The text of an answer. A tool call is written back as the JSON that models of the Llama 3 family say for it:
 * {"name": ..., "parameters": ...}, with a space after each comma and colon.
 */
export function answerText(message: AnswerMessage): string {
  const calls = message.tool_calls ?? [];
  if (calls.length === 0) return message.content ?? '';
  return calls
    .map((call) => `{"name": ${JSON.stringify(call.function.name)}, "parameters": ${respace(call.function.arguments)}}`)
    .join('\n');
}

/** JSON text with one space after each comma and colon and none elsewhere; strings and numbers are left as they are written. */
export function respace(json: string): string {
  return json.replaceAll(/"(?:[^"\\]|\\.)*"|\s+|[,:]/gs, (token) => {
    if (token === ',') return ', ';
    if (token === ':') return ': ';
    return token.startsWith('"') ? token : '';
  });
}
