/** Numbers rounded as writers of checkpoints round them: to the nearest, of two the even one. By definition, for reading. */
import { halfEven } from '../native/narrow-cache.js';

const float = new Float32Array(1);
const floatBits = new Uint32Array(float.buffer);

/** The upper half of a float32. */
export function bf16Bits(x: number): number {
  float[0] = x;
  const bits = floatBits[0] ?? 0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

export function bf16(x: number): number {
  floatBits[0] = bf16Bits(x) * 2 ** 16;
  return float[0] ?? 0;
}

/** Where 1024 steps make a power of two, and how many of them it is; of numbers below 2^-14 those of 2^-14. */
function f16Steps(x: number): { readonly steps: number; readonly unit: number; readonly exponent: number } {
  float[0] = x;
  const exponent = Math.max((((floatBits[0] ?? 0) >>> 23) & 0xff) - 127, -14);
  const unit = 2 ** (exponent - 10);
  return { steps: halfEven(Math.abs(float[0]) / unit), unit, exponent };
}

/** Of float16; for numbers that it has room for. */
export function f16Bits(x: number): number {
  const { steps, exponent } = f16Steps(x);
  // A normal number's first step is implied, and one rounded up to the next power of two carries into the exponent.
  return (x < 0 ? 0x8000 : 0) + (exponent + 14) * 1024 + steps;
}

export function f16(x: number): number {
  const { steps, unit } = f16Steps(x);
  return Math.sign(x) * steps * unit;
}

/** An array's bytes as they lie in a file. */
export const bytesOf = ({ buffer, byteOffset, byteLength }: Uint16Array | Int32Array | Float32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);
