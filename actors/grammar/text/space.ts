/**
 * White space between the parts of a JSON value: what models write (one space, or a new line and its indentation), bounded, so that an
 * answer cannot be padded for ever. Values that must be compared byte by byte have one fixed form instead.
 */
import type { GrammarWriter } from './writer.js';

/** How a value is written. */
export interface Layout {
  /** Behind an opening and before a closing bracket; a fragment, may be empty. */
  readonly gap: string;
  readonly comma: string;
  /** Literal text before and fragment behind the colon of a pair. */
  readonly colon: string;
}

const MAX_INDENT = 32;

export function freeLayout(writer: GrammarWriter): Layout {
  const gap = writer.once('ws', () => `( " " | "\\n" [ \\t]{0,${MAX_INDENT}} )?`);
  return { gap, comma: `"," ${gap}`, colon: '" "?' };
}

export const FIXED_LAYOUT: Layout = { gap: '', comma: '", "', colon: '" "' };
