/**
 * The part of OpenTelemetry's SDK that sends spans to a collector, loaded only where one is configured: the packages are the user's to
 * install (optional peers in package.json). The only user of them; main thread.
 */
import type { Log } from '../../actors/runtime/log.js';
import { errorFields } from '../../actors/runtime/log.js';
import { EXIT } from '../exit-code.js';
import { StartError } from '../start-error.js';
import type { TracerProvider } from './call-spans.js';

export interface SpanSender {
  readonly provider: TracerProvider;
  /** Sends what is left, or gives it up soon. Never rejects. */
  close(): Promise<void>;
}

/** Of the versions that run on every Node that we run on, as package.json has them. */
const packages = ['@opentelemetry/sdk-trace-node@2', '@opentelemetry/exporter-trace-otlp-http@0.223', '@opentelemetry/resources@2'];

/** The collector may be away when we stop. */
const EXPORT_LIMIT_MS = 5000;

export interface SenderOptions {
  /** "http://127.0.0.1:4318", or with the whole path of traces. */
  readonly endpoint: string;
  readonly version: string;
  readonly log: Log;
}

/** @throws StartError when a package is missing */
export async function openSender({ endpoint, version, log }: SenderOptions): Promise<SpanSender> {
  const [sdk, exporter, resources] = await load();
  const resource = resources
    .defaultResource()
    .merge(resources.resourceFromAttributes({ 'service.name': process.env['OTEL_SERVICE_NAME'] ?? 'inferd', 'service.version': version }));
  const sender = new exporter.OTLPTraceExporter({ url: tracesUrl(endpoint), timeoutMillis: EXPORT_LIMIT_MS });
  const provider = new sdk.NodeTracerProvider({ resource, spanProcessors: [new sdk.BatchSpanProcessor(sender)] });
  return {
    provider,
    close: () => provider.shutdown().catch((error: unknown) => log.warn(errorFields(error), 'the last spans were not sent')),
  };
}

async function load() {
  try {
    return await Promise.all([
      import('@opentelemetry/sdk-trace-node'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/resources'),
    ]);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new StartError(
      `metrics.otlp_endpoint needs packages that are not installed: run "npm install ${packages.join(' ')}" beside inferd, or leave it away.`,
      EXIT.config,
      error,
    );
  }
}

/** As OTEL_EXPORTER_OTLP_ENDPOINT is read: traces have a path below it, unless a path is given. */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint);
  if (url.pathname === '/' || url.pathname === '') url.pathname = '/v1/traces';
  return url.href;
}
