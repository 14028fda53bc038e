/** A download with its progress, made of a call and the notifications that name its token. */
import type { PullNews } from '../schemas/hub.js';
import type { CallOptions, MethodParams, MethodResult } from './types.js';

export type { PullNews };

export interface PullOptions extends CallOptions {
  /** Hears how far the download is, a few times a second. */
  readonly onProgress?: (news: PullNews) => void;
}

export type PullParams = Omit<MethodParams<'models.pull'>, 'stream'>;

/** The part of a client that this needs. */
interface Caller {
  call(method: 'models.pull', params: MethodParams<'models.pull'>, options: CallOptions): Promise<MethodResult<'models.pull'>>;
  onNotification(method: string, listener: (params: Readonly<Record<string, unknown>>) => void): () => void;
}

let count = 0;

/** @throws RpcError, ConnectionClosedError, or the signal's reason; the daemon keeps what came */
export async function pullModel(
  client: Caller,
  params: PullParams,
  { onProgress, ...options }: PullOptions,
): Promise<MethodResult<'models.pull'>> {
  if (onProgress === undefined) return client.call('models.pull', params, options);
  const token = `pull-${++count}`;
  const stop = client.onNotification('$/progress', (event) => {
    if (event['token'] === token) onProgress(event as unknown as PullNews); // proof: the daemon's progress schema of the method
  });
  try {
    return await client.call('models.pull', { ...params, stream: { token } }, options);
  } finally {
    stop();
  }
}
