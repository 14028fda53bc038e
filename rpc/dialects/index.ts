/** The faces of all dialects: a folder in this one and a line here. */
import type { RpcDeps } from '../context.js';
import type { Face } from '../face.js';
import { messagesFaces } from './messages/face.js';
import { ollamaFaces } from './ollama/face.js';
import { responsesFaces } from './responses/face.js';

export function dialectFaces(deps: RpcDeps): readonly Face[] {
  return [...responsesFaces(deps), ...messagesFaces(deps), ...ollamaFaces(deps)];
}
