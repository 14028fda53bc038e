/** The two documents of the daemon, and the entries of the page made from them: a route or a method each. */

/** What every request to the daemon carries. The token lives here and nowhere else: it is gone when the page is. */
export const session = { token: '' };

export function authHeaders() {
  return session.token === '' ? {} : { authorization: `Bearer ${session.token}` };
}

/** Thrown when the daemon asks for a token. */
export class NeedsToken extends Error {}

async function getDocument(path) {
  const response = await fetch(path, { headers: authHeaders() });
  if (response.status === 401) throw new NeedsToken();
  const body = await response.json();
  if (!response.ok) throw new Error(body.error?.message ?? `The daemon answered ${response.status}.`);
  return body;
}

/** Both documents. @throws NeedsToken */
export async function getDocuments() {
  const [openapi, openrpc] = await Promise.all([getDocument('/openapi.json'), getDocument('/openrpc.json')]);
  return { openapi, openrpc };
}

/** What `node` refers to in `root`, or itself. */
export function deref(root, node) {
  let at = node;
  for (let i = 0; i < 32 && typeof at?.$ref === 'string' && at.$ref.startsWith('#/'); i++) {
    at = at.$ref
      .slice(2)
      .split('/')
      .reduce((value, part) => value?.[part.replaceAll('~1', '/').replaceAll('~0', '~')], root);
  }
  return at ?? {};
}

/** Routes, in the order of their groups. */
export function httpEntries(openapi) {
  const entries = Object.entries(openapi.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([verb, operation]) => ({
      kind: 'http',
      id: `http/${operation.operationId}`,
      title: path,
      verb: verb.toUpperCase(),
      path,
      operation,
      root: openapi,
      group: operation.tags?.[0] ?? '',
      summary: operation.summary ?? '',
      open: (operation.security ?? openapi.security ?? []).length === 0,
    })),
  );
  const order = (openapi.tags ?? []).map(({ name }) => name);
  return entries.sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group));
}

/** Methods, in the order of their groups. */
export function rpcEntries(openrpc) {
  const order = Object.keys(openrpc.components?.tags ?? {});
  return openrpc.methods
    .map((method) => ({
      kind: 'rpc',
      id: `rpc/${method.name}`,
      title: method.name,
      verb: 'RPC',
      method,
      root: openrpc,
      group: method.tags?.[0]?.name ?? '',
      summary: method.summary ?? '',
    }))
    .sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group));
}

/** Entries by their group, in the order in which they come. */
export function grouped(entries) {
  const groups = new Map();
  for (const entry of entries) groups.set(entry.group, [...(groups.get(entry.group) ?? []), entry]);
  return groups;
}
