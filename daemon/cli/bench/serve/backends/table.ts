/** All backends of `inferd bench serve`. A new one is a line of its file, or a file and a line here. */
import type { Backend } from './backend.js';
import { inferdWsBackends } from './inferd-ws.js';
import { openaiBackends } from './openai.js';

export const backends: readonly Backend[] = [...inferdWsBackends, ...openaiBackends];
