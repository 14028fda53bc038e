/**
 * JSON-RPC over one WebSocket to the daemon that served the page. It is opened when the page is, and again whenever it closed: at once
 * after a token was given, else after a pause that grows. A page is not told why a WebSocket was refused, so it then asks by HTTP.
 *
 *   states: 'connecting', 'open', 'locked' (the daemon asks for a token), 'refused' (it did not take the one given), 'gone'
 */

/** An error of the daemon: its sentence, its code, its data. */
export class RpcError extends Error {
  constructor({ code, message, data }) {
    super(message);
    Object.assign(this, { code, data });
  }
}

export const CANCELLED = -32800;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 8000;

/** `onState(state)` is told of each change. The token lives in this object and nowhere else: it is gone when the page is. */
export function connectRpc(onState) {
  const waiting = new Map();
  const listeners = new Map();
  let token = '';
  let socket = null;
  let nextId = 1;
  let pauseMs = FIRST_PAUSE_MS;
  let timer = 0;

  const send = (message) => socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));

  function dispatch({ id, method, params, result, error }) {
    if (method === '$/progress') waiting.get(params.token)?.onProgress?.(params);
    else if (method !== undefined) for (const listener of listeners.get(method) ?? []) listener(params);
    else {
      const call = waiting.get(id);
      waiting.delete(id);
      if (error === undefined) call?.resolve(result);
      else call?.reject(new RpcError(error));
    }
  }

  async function lost() {
    for (const call of [...waiting.values()]) call.reject(new Error('The connection to the daemon was closed.'));
    waiting.clear();
    socket = null;
    let state = 'gone';
    try {
      const headers = token === '' ? {} : { authorization: `Bearer ${token}` };
      const { status } = await fetch('/v1/models', { headers, cache: 'no-store' });
      if (status === 401) state = token === '' ? 'locked' : 'refused';
    } catch {
      // nobody listens
    }
    if (socket !== null) return; // a token was given meanwhile
    onState(state);
    if (state !== 'gone') return;
    timer = setTimeout(open, pauseMs);
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
  }

  function open() {
    clearTimeout(timer);
    onState('connecting');
    // A page cannot set headers on a WebSocket: the token goes as a subprotocol, never in the address.
    const fresh = new WebSocket(
      `${location.origin.replace(/^http/, 'ws')}/rpc`,
      token === '' ? ['jsonrpc'] : ['jsonrpc', `bearer.${token}`],
    );
    socket = fresh;
    fresh.addEventListener('open', async () => {
      pauseMs = FIRST_PAUSE_MS;
      try {
        await rpc.call('initialize', {
          client: { name: 'inferd page' },
          protocol: 1,
          capabilities: { batchNotifications: true, deltaHead: true },
        });
        onState('open');
      } catch {
        fresh.close();
      }
    });
    fresh.addEventListener('message', ({ data }) => {
      for (const message of [JSON.parse(data)].flat()) dispatch(message);
    });
    fresh.addEventListener('close', () => {
      if (socket === fresh) void lost();
    });
  }

  const rpc = {
    open,
    /** Connects anew with this token. */
    useToken(value) {
      token = value;
      const old = socket;
      socket = null;
      old?.close();
      open();
    },
    /** Resolves with the result. `signal` cancels it in the daemon. @throws RpcError, or Error when the connection is lost */
    call(method, params = {}, { signal, onProgress } = {}) {
      if (socket?.readyState !== WebSocket.OPEN) return Promise.reject(new Error('There is no connection to the daemon now.'));
      const id = nextId++;
      const cancel = () => socket?.readyState === WebSocket.OPEN && send({ method: '$/cancelRequest', params: { id } });
      const answer = new Promise((resolve, reject) => waiting.set(id, { resolve, reject, onProgress }));
      send({ id, method, params });
      signal?.addEventListener('abort', cancel);
      if (signal?.aborted) cancel();
      return answer.finally(() => signal?.removeEventListener('abort', cancel));
    },
    /** Hears notifications; returns what stops it. */
    on(method, listener) {
      const set = listeners.get(method) ?? new Set();
      listeners.set(method, set.add(listener));
      return () => set.delete(listener);
    },
  };
  return rpc;
}
