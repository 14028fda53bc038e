/** Turns grammars without recursion into regular expressions, so that tests can ask what they match. */

/** A pattern for whole texts. Only what the grammars of tools are made of: literals, classes, groups, alternatives, repetitions, rules. */
export function expressionOf(gbnf: string): RegExp {
  const rules = new Map(gbnf.split('\n').flatMap((line) => (line.includes('::=') ? [split(line)] : [])));
  const expand = (name: string): string => {
    const body = rules.get(name);
    if (body === undefined) throw new Error(`there is no rule ${name}`);
    return `(?:${body.replace(/"((?:[^"\\]|\\.)*)"|\[(?:[^\]\\]|\\.)*\]|[a-z][\w-]*|\(|\s+/g, (token, text?: string) => {
      if (text !== undefined) return (JSON.parse(token) as string).replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
      if (token === '(') return '(?:';
      if (token.startsWith('[')) return token;
      return token.trim() === '' ? '' : expand(token);
    })})`;
  };
  return new RegExp(`^${expand('root')}$`, 's');
}

function split(line: string): readonly [string, string] {
  const [name = '', body = ''] = line.split(/\s*::=\s*/);
  return [name, body];
}
