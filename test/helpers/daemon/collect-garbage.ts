/**
 * Collects the garbage of every thread of this process, as a debugger would ask for it: what a process holds then is what it needs, and not
 * what its threads have not yet cleared away. Node's own `gc()` reaches only the thread that calls it.
 */
import { Session } from 'node:inspector';

const collectGarbage = 'HeapProfiler.collectGarbage';
/** A thread that waits in native code answers when it wakes; nobody waits longer than this for it. */
const ANSWER_MS = 2000;

interface Attached {
  readonly params: { readonly sessionId: string };
}
interface FromWorker {
  readonly params: { readonly message: string };
}

/** Resolves with the number of worker threads that collected theirs, after the main thread did. */
export async function collectAllGarbage(): Promise<number> {
  const session = new Session();
  session.connect();
  try {
    await posted(session, collectGarbage);
    const asked: string[] = [];
    let answered = 0;
    let whole = (): void => {};
    session.on('NodeWorker.attachedToWorker', ({ params }: Attached) => {
      asked.push(params.sessionId);
      const message = JSON.stringify({ id: 1, method: collectGarbage });
      session.post('NodeWorker.sendMessageToWorker', { sessionId: params.sessionId, message });
    });
    session.on('NodeWorker.receivedMessageFromWorker', ({ params }: FromWorker) => {
      if ((JSON.parse(params.message) as { readonly id?: number }).id !== 1) return;
      if (++answered === asked.length) whole();
    });
    const all = new Promise<void>((resolve) => {
      whole = resolve;
    });
    // Threads that run already are attached before the answer to this comes.
    await posted(session, 'NodeWorker.enable', { waitForDebuggerOnStart: false });
    if (answered < asked.length) await Promise.race([all, new Promise((resolve) => setTimeout(resolve, ANSWER_MS))]);
    return answered;
  } finally {
    session.disconnect();
  }
}

function posted(session: Session, method: string, params: object = {}): Promise<void> {
  return new Promise((resolve, reject) => {
    session.post(method, params, (error) => (error === null ? resolve() : reject(error)));
  });
}
