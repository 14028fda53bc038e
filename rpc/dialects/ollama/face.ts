/** All routes of Ollama's, unless server.ollama_api is false. */
import type { RpcDeps } from '../../context.js';
import type { Face } from '../../face.js';
import { generateFaces } from './generate-faces.js';
import { hubFaces } from './hub-faces.js';
import { modelFaces } from './model-faces.js';

export function ollamaFaces({ config }: Pick<RpcDeps, 'config'>): readonly Face[] {
  return config.server.ollama_api ? [...generateFaces, ...modelFaces, ...hubFaces] : [];
}
