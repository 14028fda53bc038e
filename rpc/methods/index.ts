/** All methods of the daemon, by name. To add one: rpc/README.md; what a method is derives from its value. */
import type { RpcDeps } from '../context.js';
import type { ParamsOf, ResultOf } from '../method.js';
import { requestLimits } from '../schemas/common.js';
import { adaptersListMethod, adaptersLoadMethod, adaptersUnloadMethod } from './adapters.js';
import { chatMethod } from './chat.js';
import { completionsMethod } from './completions.js';
import { daemonDrainMethod, daemonInfoMethod, discoverMethod, pingMethod } from './daemon.js';
import { embeddingsMethod } from './embeddings.js';
import { cancelRequestMethod, creditMethod } from './flow.js';
import { modelsDeleteMethod, modelsPullMethod } from './hub.js';
import { initializeMethod } from './initialize.js';
import { kvMapMethod } from './kv.js';
import { modelsGetMethod, modelsListMethod, modelsLoadMethod, modelsUnloadMethod } from './models.js';
import { profileStartMethod, profileStopMethod } from './profile.js';
import { requestsGetMethod } from './request.js';
import { requestsCancelMethod, requestsListMethod } from './requests.js';
import { statsGetMethod, statsSubscribeMethod, statsUnsubscribeMethod } from './stats.js';
import { detokenizeMethod, tokenizeMethod } from './tokenize.js';

/** `document`: gives the OpenRPC document, which is built from these methods. */
export function createMethods(deps: RpcDeps, document: () => object) {
  const limits = requestLimits(deps.config);
  return {
    initialize: initializeMethod(deps),
    'chat.completions.create': chatMethod(deps, limits),
    'completions.create': completionsMethod(deps, limits),
    'embeddings.create': embeddingsMethod(deps, limits),
    tokenize: tokenizeMethod(deps),
    detokenize: detokenizeMethod(deps),
    'models.list': modelsListMethod(deps),
    'models.get': modelsGetMethod(deps),
    'models.pull': modelsPullMethod(deps),
    'models.delete': modelsDeleteMethod(deps),
    'adapters.load': adaptersLoadMethod(deps),
    'adapters.list': adaptersListMethod(deps),
    'adapters.unload': adaptersUnloadMethod(deps),
    'kv.map': kvMapMethod(deps),
    'requests.get': requestsGetMethod(deps),
    'requests.list': requestsListMethod(deps),
    'requests.cancel': requestsCancelMethod(),
    'stats.get': statsGetMethod(deps),
    'stats.subscribe': statsSubscribeMethod(deps),
    'stats.unsubscribe': statsUnsubscribeMethod(),
    'profile.start': profileStartMethod(deps),
    'profile.stop': profileStopMethod(deps),
    'daemon.info': daemonInfoMethod(deps),
    'daemon.drain': daemonDrainMethod(deps),
    ping: pingMethod(),
    'rpc.discover': discoverMethod(document),
    '$/cancelRequest': cancelRequestMethod(),
    '$/credit': creditMethod(),
    // Last: their examples are sent in this order, and a model that is loaded again has forgotten what those of others leave in it.
    'models.unload': modelsUnloadMethod(deps),
    'models.load': modelsLoadMethod(deps),
  };
}

/** Types of all methods, for the client. */
export type Methods = ReturnType<typeof createMethods>;
export type MethodName = keyof Methods;
export type MethodParams<M extends MethodName> = ParamsOf<Methods[M]>;
export type MethodResult<M extends MethodName> = ResultOf<Methods[M]>;
