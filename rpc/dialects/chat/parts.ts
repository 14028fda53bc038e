/**
 * The answer of a chat completion as a row of blocks, which is how other dialects tell it: reasoning, text, and each call of a tool. Faces
 * with these dialects ask for one answer, so there is one choice.
 */
import type { ChatCompletion, ChatDelta } from '../../schemas/chat.js';

/** More of the answer, or the beginning of a block. */
export type Part =
  | { readonly kind: 'reasoning'; readonly text: string }
  | { readonly kind: 'text'; readonly text: string }
  /** `start`: this is the first piece of the call. */
  | { readonly kind: 'call'; readonly start: { readonly id: string; readonly name: string } | null; readonly text: string };

/** The parts that one chunk brings, in the order of blocks. `choices`: of an event of chat.completions.create. */
export function partsOf(choices: readonly object[]): readonly Part[] {
  return (choices as readonly ChatDelta[]).flatMap(({ delta }) => {
    const { reasoning_content: reasoning = '', content = '', tool_calls: calls = [] } = delta;
    return [
      ...(reasoning === '' ? [] : [{ kind: 'reasoning' as const, text: reasoning }]),
      ...(content === '' ? [] : [{ kind: 'text' as const, text: content }]),
      ...calls.map(({ id, function: { name, arguments: text } }) => {
        return { kind: 'call' as const, start: id === undefined || name === undefined ? null : { id, name }, text };
      }),
    ];
  });
}

/** Log-probabilities in the same events, of text and calls alike. */
export function logprobsOf(choices: readonly object[]): readonly object[] {
  return (choices as readonly ChatDelta[]).flatMap(({ logprobs }) => logprobs?.content ?? []);
}

export type Choice = ChatCompletion['choices'][number];

/** The one answer of a whole completion. */
export function onlyChoice({ choices }: ChatCompletion): Choice {
  return choices[0] as Choice; // proof: the faces leave n at 1
}

/** The blocks of a whole answer, each as one part. */
export function wholeParts({ message }: Choice): readonly Part[] {
  const { reasoning_content: reasoning = '', content, tool_calls: calls = [] } = message;
  return [
    ...(reasoning === '' ? [] : [{ kind: 'reasoning' as const, text: reasoning }]),
    ...((content ?? '') === '' ? [] : [{ kind: 'text' as const, text: content ?? '' }]),
    ...calls.map(({ id, function: { name, arguments: text } }) => ({ kind: 'call' as const, start: { id, name }, text })),
  ];
}

/** True when a part goes on with the block that is open. */
export function goesOn(open: Part['kind'] | null, part: Part): boolean {
  return part.kind === open && (part.kind !== 'call' || part.start === null);
}

/** A server-sent event that has its name in its data too. */
export function namedEvent(type: string, members: object = {}): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;
}
