/** JSON values that no schema describes: any value, any object, nested as deep as the limits allow. */

import { writeExpr } from '../pattern/write.js';
import { CANONICAL_CHAR, FREE_CHAR, PLAIN_ALPHABET } from '../text/json-text.js';
import { freeLayout } from '../text/space.js';
import { anyOf, type GrammarWriter } from '../text/writer.js';
import { FREE_NUMBER } from './numbers.js';

export const anyString = (w: GrammarWriter): string => w.once('string', () => `"\\"" ${anyChar(w)}* "\\""`);
export const anyChar = (w: GrammarWriter): string => w.once('char', () => FREE_CHAR);
export const canonicalChar = (w: GrammarWriter): string => w.once('keychar', () => CANONICAL_CHAR);
/** A key with its quotes. */
export const anyKey = (w: GrammarWriter): string => w.once('key', () => `"\\"" ${canonicalChar(w)}* "\\""`);
export const anyNumber = (w: GrammarWriter): string => w.once('number', () => writeExpr(FREE_NUMBER, w, PLAIN_ALPHABET));

/**
 * Keys that no answer has unless a schema names them: JavaScript programs read `__proto__` of a parsed object as something else than a key.
 */
export const FORBIDDEN_KEYS: readonly string[] = ['__proto__'];

export function anyValue(w: GrammarWriter, depth = w.meter.limits.maxValueDepth): string {
  return w.once(`value${depth}`, () => {
    const scalars = [anyString(w), anyNumber(w), '"true"', '"false"', '"null"'];
    return depth <= 0 ? anyOf(scalars) : anyOf([anyObject(w, depth), anyArray(w, depth), ...scalars]);
  });
}

export function anyObject(w: GrammarWriter, depth = w.meter.limits.maxValueDepth): string {
  return w.once(`object${depth}`, () => {
    const { gap, comma, colon } = freeLayout(w);
    const key = w.distinct(
      FORBIDDEN_KEYS.map((k) => JSON.stringify(k)),
      anyKey(w),
    );
    const pair = `${key} ":" ${colon} ${anyValue(w, depth - 1)}`;
    return w.scope(`"{" ${gap} ( ${pair} ( ${comma} ${pair} )* ${gap} )? "}"`);
  });
}

export function anyArray(w: GrammarWriter, depth = w.meter.limits.maxValueDepth): string {
  return w.once(`array${depth}`, () => {
    const { gap, comma } = freeLayout(w);
    const item = anyValue(w, depth - 1);
    return `"[" ${gap} ( ${item} ( ${comma} ${item} )* ${gap} )? "]"`;
  });
}
