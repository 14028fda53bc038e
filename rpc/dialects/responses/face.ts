/** POST /v1/responses: OpenAI's Responses on chat.completions.create, stateless. */
import type { RpcDeps } from '../../context.js';
import type { Face } from '../../face.js';
import type { ChatCompletion } from '../../schemas/chat.js';
import { requestLimits } from '../../schemas/common.js';
import { checkBody } from '../chat/check.js';
import { sharedFields } from '../chat/fields.js';
import { openai } from '../openai/errors.js';
import { wholeResponse } from './answer.js';
import { responsesExamples } from './examples.js';
import { chatParams, names } from './params.js';
import { responseEvent, responseSchema, responsesBody } from './schema.js';
import { responseEvents } from './stream.js';

export function responsesFaces({ config }: Pick<RpcDeps, 'config'>): readonly Face[] {
  const limits = requestLimits(config);
  const schema = responsesBody(limits);
  const shared = sharedFields(limits);
  return [
    {
      id: 'responses.create',
      verb: 'POST',
      path: '/v1/responses',
      reads: true,
      access: 'infer',
      dialect: openai,
      names,
      ask: ({ body }) => {
        const asked = checkBody(schema, body);
        return {
          method: 'chat.completions.create',
          params: chatParams(asked, shared),
          answer: (result) => wholeResponse(asked, result as ChatCompletion), // proof: of that method
          stream: responseEvents(asked),
        };
      },
      about: {
        methods: ['chat.completions.create'],
        group: 'Generation',
        summary: "Answers a conversation, as OpenAI's Responses.",
        description:
          'Stateless: nothing is stored, so store: true, previous_response_id, conversation and background are refused. Input is text, ' +
          'messages, function_call, function_call_output and reasoning; tools are functions. Streamed, log-probabilities come with the ' +
          'deltas only. Parameters of chat completions that Responses lack (seed, top_k, stop, ...) are taken under their names there.',
        params: schema,
        result: responseSchema,
        event: responseEvent,
        streamed: 'text/event-stream',
        examples: responsesExamples,
      },
    },
  ];
}
