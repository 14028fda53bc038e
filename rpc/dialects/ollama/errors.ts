/** Errors in Ollama's shape: one sentence. */
import { errorTable } from '../../../actors/messages/errors.js';
import type { Dialect } from '../dialect.js';

export const errorLine = (message: string): { readonly error: string } => ({ error: message });

export const ollama: Dialect = {
  formTyped: true,
  errorName: 'OllamaError',
  errorSchema: {
    type: 'object',
    description: "Errors in Ollama's shape.",
    required: ['error'],
    properties: { error: { type: 'string', description: 'One plain sentence.' } },
  },
  failure: ({ kind, message }) => ({
    status: errorTable[kind].status,
    body: JSON.stringify(errorLine(message ?? errorTable[kind].message)),
  }),
  refusal: (status, message) => ({ status, body: JSON.stringify(errorLine(message)) }),
};
