/** Checks of what lies deep in a dialect's body, where one schema for all would only say "wrong". */
import { z } from 'zod';
import { InferdError, invalidParams } from '../../../actors/messages/errors.js';
import { checkParams } from '../../params.js';

const noLongLists: ReadonlySet<string> = new Set();

/** The whole body of a face. @throws InferdError invalid_params */
export function checkBody<S extends z.ZodObject>(schema: S, body: unknown): z.output<S> {
  return checkParams(schema, body, noLongLists);
}

/** A part of a body, which is at `path`. @throws InferdError invalid_params */
export function checkAt<S extends z.ZodType>(schema: S, value: unknown, path: string): z.output<S> {
  return checkParams(z.object({ [path]: schema }), { [path]: value }, noLongLists)[path] as z.output<S>; // proof: the schema of that member
}

/** @throws InferdError invalid_params */
export function refuse(path: string, message: string): never {
  throw invalidParams([{ path, message }]);
}

/** What this daemon cannot do yet. `what`: a sentence without its end. @throws InferdError unsupported */
export function unsupported(path: string, what: string): never {
  throw new InferdError('unsupported', `${path}: ${what}`, [{ path, message: what }]);
}

export const NO_IMAGES = 'images are not supported: no model here reads them; send text';
export const NO_AUDIO = 'audio is not supported: no model here hears it; send text';
export const NO_FILES = 'files are not supported: send their text';
