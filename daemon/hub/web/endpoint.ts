/**
 * Where the hub is, and the token for it: HF_ENDPOINT, `inference.api_key`, HF_TOKEN, and the file that Hugging Face's own tools keep.
 * Only reads.
 */
import { readFileSync } from 'node:fs';
import { hubTokenPath } from '../../../config/paths.js';
import { PullError } from '../error.js';

export interface Endpoint {
  /** Without a slash at the end. */
  readonly url: string;
  /** Scheme, host and port: the token goes nowhere else. */
  readonly origin: string;
  readonly token: string | null;
}

const publicHub = 'https://huggingface.co';

/** @throws PullError usage when HF_ENDPOINT or the token cannot be used */
export function hubEndpoint(apiKey: string | null, env: NodeJS.ProcessEnv): Endpoint {
  const given = env['HF_ENDPOINT'] || publicHub;
  const url = URL.canParse(given) ? new URL(given) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '')
    throw new PullError('usage', 'HF_ENDPOINT is not the address of a hub; set it to one like https://huggingface.co, or unset it');
  const token = apiKey ?? (env['HF_TOKEN'] || env['HUGGING_FACE_HUB_TOKEN'] || storedToken(env) || null);
  const bare = token?.trim() ?? null;
  if (bare !== null && !/^[\x21-\x7e]{1,4096}$/.test(bare))
    throw new PullError('usage', 'The Hugging Face token has characters that no token has; check inference.api_key or HF_TOKEN');
  return { url: `${url.origin}${url.pathname.replace(/\/+$/, '')}`, origin: url.origin, token: bare };
}

function storedToken(env: NodeJS.ProcessEnv): string {
  try {
    return readFileSync(hubTokenPath(env), 'utf8').slice(0, 8192).trim();
  } catch {
    return '';
  }
}
