/**
 * What `import ... from 'inferd'` gives: an engine in the caller's own process, without a socket. Programs that talk to a daemon take
 * `inferd/client` instead; both answer with the same objects and fail with the same errors.
 */
export { ConfigError } from '../../config/error.js';
export type { ConfigValues } from '../../config/load.js';
export { ConnectionClosedError, RpcError } from '../../rpc/client/errors.js';
export type * from '../../rpc/client/types.js';
export { StartError } from '../start-error.js';
export { createEngine, type EngineOptions } from './create-engine.js';
export type { Engine, GenerateOptions, StreamOptions } from './engine.js';
export type { ChatParams, ChatPrompt, TextParams, TextPrompt } from './prompts.js';
