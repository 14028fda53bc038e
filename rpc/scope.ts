/**
 * Scopes: what a caller may do. A credential has some of them, each method and route needs one; the doors say which ones a caller has
 * (daemon/front), this part says what is missing. Plain data.
 */
import { type Failure, InferdError } from '../actors/messages/errors.js';

/** infer: generate, tokenize, list models. metrics: figures. admin: change what the daemon does, and see everybody's requests. */
export const scopeNames = ['infer', 'metrics', 'admin'] as const;
export type Scope = (typeof scopeNames)[number];
export type Scopes = ReadonlySet<Scope>;

/** What a method needs. "any": to be let in, whatever the scopes. */
export type Need = Scope | 'any';

export const allScopes: Scopes = new Set(scopeNames);
export const noScopes: Scopes = new Set();

/** No scope has another in it: one that may administer cannot generate unless it was given both. */
export function suffices(scopes: Scopes, need: Need): boolean {
  return need === 'any' || scopes.has(need);
}

export function beyondScope(need: Need): Required<Failure> {
  return { kind: 'insufficient_scope', message: `This needs the scope "${need}", which this caller does not have`, data: { scope: need } };
}

/** @throws InferdError when the caller may not do what needs `need` */
export function checkScope(scopes: Scopes, need: Need): void {
  if (suffices(scopes, need)) return;
  const { kind, message, data } = beyondScope(need);
  throw new InferdError(kind, message, data);
}
