/**
 * Patterns of file names as Hugging Face's tools take them: `*` any text, slashes too, `?` one character, `[ab]` and `[!ab]` one of a set; a
 * pattern that ends in a slash means all below it. Time grows with pattern times name, whatever the pattern. Pure.
 */

interface Step {
  readonly star: boolean;
  readonly takes: (char: string) => boolean;
}

/** The pattern as a test of names. */
export function glob(pattern: string): (name: string) => boolean {
  const steps = stepsOf(pattern.endsWith('/') ? `${pattern}*` : pattern);
  return (name) => matches(steps, name);
}

function stepsOf(pattern: string): readonly Step[] {
  const steps: Step[] = [];
  for (let i = 0; i < pattern.length; i++) {
    const char = pattern[i] ?? '';
    if (char === '*') {
      if (steps.at(-1)?.star !== true) steps.push({ star: true, takes: () => true });
    } else if (char === '?') steps.push({ star: false, takes: () => true });
    else {
      const end = char === '[' ? pattern.indexOf(']', i + (pattern[i + 1] === '!' ? 3 : 2)) : -1;
      if (end === -1) steps.push({ star: false, takes: (c) => c === char });
      else {
        steps.push({ star: false, takes: oneOf(pattern.slice(i + 1, end)) });
        i = end;
      }
    }
  }
  return steps;
}

function oneOf(set: string): (char: string) => boolean {
  const negated = set.startsWith('!');
  const body = negated ? set.slice(1) : set;
  const spans: (readonly [string, string])[] = [];
  for (let i = 0; i < body.length; i++) {
    const from = body[i] ?? '';
    const to = body[i + 1] === '-' ? body[i + 2] : undefined;
    spans.push([from, to ?? from]);
    if (to !== undefined) i += 2;
  }
  return (char) => spans.some(([from, to]) => char >= from && char <= to) !== negated;
}

/** After a mismatch only the last star needs to take one character more, so no pattern is tried in exponentially many ways. */
function matches(steps: readonly Step[], name: string): boolean {
  let at = 0;
  let step = 0;
  let star = -1;
  let starAt = 0;
  while (at < name.length) {
    const now = steps[step];
    if (now?.star) {
      star = step++;
      starAt = at;
    } else if (now?.takes(name[at] ?? '')) {
      step++;
      at++;
    } else if (star >= 0) {
      step = star + 1;
      at = ++starAt;
    } else return false;
  }
  while (steps[step]?.star) step++;
  return step === steps.length;
}
