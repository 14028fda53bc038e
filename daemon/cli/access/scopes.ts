/** The option --scope of commands that give somebody access. */
import { type Scope, scopeNames } from '../../../rpc/scope.js';
import { CliError, EXIT, type VerbInput, type VerbOption } from '../verb.js';

export const scopeOption: VerbOption = {
  flags: '--scope <scopes>',
  doc: `what it may do: ${scopeNames.join(', ')}, or several with commas between; infer when not given`,
  kind: 'text',
};

/** @throws CliError (64) for a scope that does not exist */
export function scopesOf(input: VerbInput): readonly Scope[] {
  const asked = (input.text('scope') ?? 'infer').split(',').map((name) => name.trim());
  const unknown = asked.find((name) => !(scopeNames as readonly string[]).includes(name));
  if (unknown !== undefined)
    throw new CliError(
      `--scope ${JSON.stringify(unknown.slice(0, 40))} is not allowed; expected some of ${scopeNames.join(', ')}`,
      EXIT.usage,
    );
  return scopeNames.filter((name) => asked.includes(name));
}
