/**
 * Who gets the spans: the collector of `metrics.otlp_endpoint`, else whatever provider the process has registered with OpenTelemetry (a
 * program with an engine of ours, or a preloaded instrumentation); where there is none, a call costs a lookup and no more. Main thread.
 */
import type { Log } from '../../actors/runtime/log.js';
import type { Config } from '../../config/schema.js';
import type { Observe } from '../../rpc/observe.js';
import { packageVersion } from '../version.js';
import { registeredSpans, spansOf } from './call-spans.js';

export interface Tracing {
  readonly observe: Observe;
  /** Sends what is left. Never rejects. */
  close(): Promise<void>;
}

/** @throws StartError when the endpoint is set and the packages that send are not installed */
export async function openTracing({ otlp_endpoint: endpoint }: Config['metrics'], log: Log): Promise<Tracing> {
  const version = packageVersion();
  if (endpoint === null) return { observe: registeredSpans(version), close: async () => {} };
  // Loaded only here: the SDK is large, and may not be there.
  const { openSender } = await import('./otlp.js');
  const sender = await openSender({ endpoint, version, log });
  return { observe: spansOf(sender.provider, version), close: () => sender.close() };
}
