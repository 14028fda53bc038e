/** Errors in OpenAI's shape, which is that of every route that belongs to no other dialect: all four fields, always there. */
import { errorTable, failureBody, httpErrorBody, httpTable } from '../../../actors/messages/errors.js';
import type { Dialect } from '../dialect.js';

export const openai: Dialect = {
  errorName: 'Error',
  errorSchema: {
    type: 'object',
    description: 'Every error. All four fields are always there.',
    required: ['error'],
    properties: {
      error: {
        type: 'object',
        required: ['message', 'type', 'param', 'code'],
        properties: {
          message: { type: 'string', description: 'One plain sentence.' },
          type: {
            type: 'string',
            description: 'As OpenAI has it.',
            enum: [...new Set([...Object.values(httpTable), ...Object.values(errorTable)].map(({ type }) => type))],
          },
          param: { type: ['string', 'null'], description: 'The parameter that is wrong, where it is one.' },
          code: { type: ['string', 'null'], description: 'What went wrong, for programs.' },
        },
      },
    },
  },
  failure: (failure) => ({ status: errorTable[failure.kind].status, body: failureBody(failure) }),
  refusal: (status, message) => ({ status, body: httpErrorBody(message, httpTable[status]) }),
};
