/** Log-probabilities in the shapes of OpenAI's chat and text completions and of vLLM's prompt_logprobs. */
import type { LogprobText } from '../../actors/messages/requests.js';

export interface ChatLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: number[] | null;
  readonly top_logprobs: { readonly token: string; readonly logprob: number; readonly bytes: number[] | null }[];
}

/** JSON has no infinity; vLLM writes this for a token that cannot be. */
const lowest = -9999;
const finite = (logprob: number): number => (Number.isFinite(logprob) ? logprob : lowest);

export function chatLogprob(entry: LogprobText): ChatLogprob {
  return {
    token: entry.token,
    logprob: finite(entry.logprob),
    bytes: [...entry.bytes],
    top_logprobs: entry.top.map((t) => ({ token: t.token, logprob: finite(t.logprob), bytes: [...t.bytes] })),
  };
}

export interface CompletionLogprobs {
  readonly text_offset: number[];
  readonly token_logprobs: (number | null)[];
  readonly tokens: string[];
  readonly top_logprobs: (Record<string, number> | null)[];
}

/** `entries`: one per token; one without a log-probability (NaN) is the first of a prompt. `from`: code points before the first. */
export function completionLogprobs(entries: readonly LogprobText[], from: number): CompletionLogprobs {
  const out: CompletionLogprobs = { text_offset: [], token_logprobs: [], tokens: [], top_logprobs: [] };
  let offset = from;
  for (const entry of entries) {
    const known = !Number.isNaN(entry.logprob);
    out.text_offset.push(offset);
    out.tokens.push(entry.token);
    out.token_logprobs.push(known ? finite(entry.logprob) : null);
    out.top_logprobs.push(known ? topMap(entry) : null);
    offset += codePoints(entry.token);
  }
  return out;
}

/** The alternatives, and the token itself when it is not among them. The first of two equal texts is the better one and stays. */
function topMap(entry: LogprobText): Record<string, number> {
  const map = new Map<string, number>();
  for (const t of entry.top) if (!map.has(t.token)) map.set(t.token, finite(t.logprob));
  if (!map.has(entry.token)) map.set(entry.token, finite(entry.logprob));
  return Object.fromEntries(map);
}

export function codePoints(text: string): number {
  let n = 0;
  for (const _ of text) n++;
  return n;
}

/**
 * All tokens of a prompt: `known` by position, and the first token, whose text is what the others leave of `text`, with NaN.
 * `firstId`: its token id.
 */
export function promptEntries(known: readonly (LogprobText | undefined)[], text: string, firstId: number): readonly LogprobText[] {
  const rest = known.slice(1).filter((entry) => entry !== undefined);
  const tail = rest.map((entry) => entry.token).join('');
  const token = text.endsWith(tail) ? text.slice(0, text.length - tail.length) : '';
  return [{ token, bytes: [], id: firstId, logprob: Number.NaN, rank: 0, top: [] }, ...rest];
}

/** One element per prompt token: null for the first, else token id -> entry. */
export function promptLogprobs(entries: readonly LogprobText[]) {
  return entries.map((entry) => {
    if (Number.isNaN(entry.logprob)) return null;
    const row = (e: { readonly token: string; readonly logprob: number }, rank: number) => ({
      logprob: finite(e.logprob),
      rank,
      decoded_token: e.token,
    });
    const pairs = entry.top.map((t, i) => [String(t.id), row(t, i + 1)] as const);
    return Object.fromEntries([...pairs, [String(entry.id), row(entry, entry.rank)] as const]);
  });
}
