/** Tokens that share more and more with the right one, and some that share nothing. */
export function wrongTokens(token: string): readonly string[] {
  const other = (letter: string | undefined) => (letter === 'A' ? 'B' : 'A');
  const changed = [...token].map((letter, i) => token.slice(0, i) + other(letter) + token.slice(i + 1));
  const prefixes = [...token].slice(1).map((_, i) => token.slice(0, i + 1));
  return [...changed, ...prefixes, `${token}A`, token + token, token.toUpperCase(), 'A'.repeat(10_000), '\u00e9'];
}
