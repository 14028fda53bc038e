/**
 * Calls to the daemon: by HTTP, and by JSON-RPC over one WebSocket. Both tell what arrives while it arrives:
 *   onStatus(text, good)  what came of it    onEvent(value)  an event of a stream
 * and resolve with what is to be shown at the end: { value } or { text }. `signal` ends the call.
 */
import { authHeaders, session } from './documents.js';
import { eventParser } from './sse.js';

/** A request by HTTP. `body`: the text to send, or null. */
export async function sendHttp({ verb, url, body }, { signal, onStatus, onEvent }) {
  const began = performance.now();
  const headers = { ...authHeaders(), ...(body === null ? {} : { 'content-type': 'application/json' }) };
  const response = await fetch(url, { method: verb, headers, body, signal, cache: 'no-store' });
  const type = response.headers.get('content-type') ?? '';
  const told = (ended) => `${response.status} ${response.statusText} · ${ended} ${Math.round(performance.now() - began)} ms`;
  onStatus(told('head after'), response.ok);
  if (type.startsWith('text/event-stream')) {
    const parser = eventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const data of parser.feed(value)) onEvent(data === '[DONE]' ? data : JSON.parse(data));
    }
    onStatus(told('whole after'), response.ok);
    return { response };
  }
  const text = await response.text();
  onStatus(told('whole after'), response.ok);
  if (type.startsWith('application/json')) return { response, value: JSON.parse(text) };
  return { response, text };
}

/** One WebSocket for all calls; opened when the first is made, again after it closed or the token changed. */
const socket = { ws: null, token: '', nextId: 1, waiting: new Map() };

function opened() {
  const { ws, token } = socket;
  if (ws !== null && ws.readyState <= WebSocket.OPEN && token === session.token) return Promise.resolve(ws.ready);
  ws?.close();
  // A page cannot set headers on a WebSocket: the token goes as a subprotocol, never in the URL.
  const protocols = session.token === '' ? ['jsonrpc'] : ['jsonrpc', `bearer.${session.token}`];
  const fresh = new WebSocket(`${location.origin.replace(/^http/, 'ws')}/rpc`, protocols);
  Object.assign(socket, { ws: fresh, token: session.token });
  fresh.addEventListener('message', ({ data }) => {
    for (const message of [JSON.parse(data)].flat()) dispatch(message);
  });
  fresh.addEventListener('close', ({ reason }) => {
    const mine = [...socket.waiting.values()].filter((call) => call.ws === fresh);
    for (const call of mine) call.fail(new Error(reason === '' ? 'The connection was closed.' : `The connection was closed: ${reason}`));
  });
  fresh.ready = new Promise((resolve, reject) => {
    fresh.addEventListener('open', () => resolve(fresh));
    fresh.addEventListener('error', () => reject(new Error('No WebSocket: the daemon is gone, or it refused this page or its token.')));
  });
  return fresh.ready;
}

function dispatch(message) {
  if (message.method === undefined) socket.waiting.get(message.id)?.done(message);
  else if (message.method === '$/progress') socket.waiting.get(message.params.token)?.onEvent(message.params);
  else for (const call of socket.waiting.values()) if (call.listens) call.onEvent(message);
}

/** How long the feed of a subscription is shown before it is ended. */
const FEED_MS = 10_000;

/** A method by JSON-RPC. `params`: a value. A subscription is followed for some seconds, then ended. */
export async function sendRpc({ method, params }, { signal, onStatus, onEvent }) {
  const began = performance.now();
  const message = await call({ method, params }, { signal, onEvent });
  const good = message.error === undefined;
  onStatus(`${good ? 'result' : `error ${message.error.code}`} · after ${Math.round(performance.now() - began)} ms`, good);
  if (good && method.endsWith('.subscribe')) await follow(method, message.result, { signal, onEvent, onStatus });
  return { value: message };
}

async function call({ method, params }, { signal, onEvent, listens = false }) {
  const ws = await opened();
  const id = socket.nextId++;
  return new Promise((resolve, reject) => {
    const cancel = () => ws.send(JSON.stringify({ jsonrpc: '2.0', method: '$/cancelRequest', params: { id } }));
    const over = () => {
      socket.waiting.delete(id);
      signal?.removeEventListener('abort', cancel);
    };
    socket.waiting.set(id, {
      ws,
      listens,
      onEvent,
      done: (message) => {
        over();
        resolve(message);
      },
      fail: (error) => {
        over();
        reject(error);
      },
    });
    signal?.addEventListener('abort', cancel);
    if (signal?.aborted) cancel();
    ws.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
  });
}

async function follow(method, subscription, { signal, onEvent, onStatus }) {
  onStatus('subscribed; its notifications follow for ten seconds, or until you stop', true);
  const key = `feed ${subscription}`;
  socket.waiting.set(key, { ws: socket.ws, listens: true, onEvent, done: () => {}, fail: () => {} });
  await new Promise((resolve) => {
    setTimeout(resolve, FEED_MS);
    signal?.addEventListener('abort', resolve);
  });
  socket.waiting.delete(key);
  await call({ method: method.replace(/subscribe$/, 'unsubscribe'), params: { subscription } }, { onEvent });
  onStatus('the subscription is ended', true);
}
