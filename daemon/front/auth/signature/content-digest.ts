/** The header Content-Digest (RFC 9530): what the SHA-256 of a body is to be. Pure. */
import { SignatureFault } from './signature-input.js';

const SHA256_BYTES = 32;

/** Other algorithms may stand beside sha-256 and are not looked at. @throws SignatureFault */
export function parseContentDigest(text: string): Buffer {
  const members = text.split(',').map((member) => /^\s*([a-z0-9*][a-z0-9_.*-]*)=:([A-Za-z0-9+/]*={0,2}):\s*$/.exec(member));
  const names = members.map((member) => member?.[1]);
  const found = members.find((member) => member?.[1] === 'sha-256')?.[2];
  const digest = Buffer.from(found ?? '', 'base64');
  if (names.includes(undefined) || new Set(names).size < names.length || digest.length !== SHA256_BYTES)
    throw new SignatureFault('Content-Digest must be sha-256=:…: with the digest of the body in base64.');
  return digest;
}
