/** Methods of the protocol that this version cannot do yet: known by name, so that clients get a sentence and not "no such method". */
import { z } from 'zod';
import { InferdError } from '../../actors/messages/errors.js';
import { defineMethod } from '../method.js';
import type { Need } from '../scope.js';

const state = z.looseObject({});

function unsupported<S extends z.ZodObject>(name: string, what: string, params: S, scope: Need = 'admin') {
  return defineMethod({
    name,
    scope,
    summary: `Answers -32011: ${what}`,
    params,
    result: state,
    handler: (): never => {
      throw new InferdError('unsupported', what);
    },
  });
}

const any = z.looseObject({});

export function unsupportedMethods() {
  const adapters = 'LoRA adapters are not supported yet';
  return {
    'adapters.load': unsupported('adapters.load', adapters, any),
    'adapters.unload': unsupported('adapters.unload', adapters, any),
    'adapters.list': unsupported('adapters.list', adapters, any, 'infer'),
  };
}
