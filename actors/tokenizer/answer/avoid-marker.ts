/**
 * GBNF for text that goes on as long as a marker does not stand in it. The marker's first character stands in it once only, so a text
 * avoids it exactly when each such character begins something else: a proper beginning of the marker, and then a character that does not
 * continue it, the same first character again, or the end. Said with repetitions alone, without recursion.
 */

/** An expression for any text without `marker`, the empty one too. @throws Error when its first character stands in it twice */
export function withoutMarker(marker: string): string {
  const first = marker[0] ?? '';
  if (marker.length < 2 || marker.lastIndexOf(first) > 0) throw new Error(`the marker ${marker} does not begin in one place only`);
  const other = `${characterClass(first)}*`;
  const begun = beginning(marker, 1);
  return `${other} ((${begun})* ${ended(marker, 1)} ${other})* (${begun})*`;
}

/** Any proper beginning of the marker, of one character at least. */
function beginning(marker: string, length: number): string {
  const here = literal(marker[length - 1] ?? '');
  return length + 1 >= marker.length ? here : `${here} (${beginning(marker, length + 1)})?`;
}

/** A proper beginning of the marker and a character that neither continues it nor begins it anew. */
function ended(marker: string, length: number): string {
  const not = characterClass((marker[0] ?? '') + (marker[length] ?? ''));
  const here = literal(marker[length - 1] ?? '');
  return length + 1 >= marker.length ? `${here} ${not}` : `${here} (${not} | ${ended(marker, length + 1)})`;
}

/** All characters but these. */
function characterClass(not: string): string {
  return `[^${[...not].map((c) => (/\w/.test(c) ? c : `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`)).join('')}]`;
}

/** A text as a literal of GBNF. */
export function literal(text: string): string {
  return JSON.stringify(text);
}
