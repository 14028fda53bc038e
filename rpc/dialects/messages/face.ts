/** POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages on chat.completions.create and tokenize. */
import type { RpcDeps } from '../../context.js';
import type { Face } from '../../face.js';
import type { ChatCompletion } from '../../schemas/chat.js';
import { requestLimits } from '../../schemas/common.js';
import { checkBody } from '../chat/check.js';
import { sharedFields } from '../chat/fields.js';
import { wholeMessage } from './answer.js';
import { anthropic } from './errors.js';
import { countExamples, messagesExamples } from './examples.js';
import { chatParams, names, promptParams } from './params.js';
import { countBody, countSchema, messageEvent, messageSchema, messagesBody } from './schema.js';
import { messageEvents } from './stream.js';

const route = { verb: 'POST', reads: true, access: 'infer', dialect: anthropic, names } as const;

export function messagesFaces({ config }: Pick<RpcDeps, 'config'>): readonly Face[] {
  const limits = requestLimits(config);
  const schema = messagesBody(limits);
  const shared = sharedFields(limits);
  const counted = countBody(limits);
  return [
    {
      ...route,
      id: 'messages.create',
      path: '/v1/messages',
      ask: ({ body }) => ({
        method: 'chat.completions.create',
        params: chatParams(checkBody(schema, body), shared),
        answer: (result) => wholeMessage(result as ChatCompletion), // proof: of that method
        stream: messageEvents,
      }),
      about: {
        methods: ['chat.completions.create'],
        group: 'Anthropic',
        summary: "Answers a conversation, as Anthropic's Messages.",
        description:
          'Blocks of text, tool_use, tool_result and thinking; images and documents are refused. The header anthropic-version may be left ' +
          'out. Parameters of chat completions that Messages lack (seed, min_p, ...) are taken under their names there.',
        params: schema,
        result: messageSchema,
        event: messageEvent,
        streamed: 'text/event-stream',
        examples: messagesExamples,
      },
    },
    {
      ...route,
      id: 'messages.count_tokens',
      path: '/v1/messages/count_tokens',
      ask: ({ body }) => ({
        method: 'tokenize',
        params: promptParams(checkBody(counted, body)),
        answer: (result) => ({ input_tokens: (result as { readonly count: number }).count }), // proof: of that method
      }),
      about: {
        methods: ['tokenize'],
        group: 'Anthropic',
        summary: 'How many tokens the prompt of a message has.',
        params: counted,
        result: countSchema,
        examples: countExamples,
      },
    },
  ];
}
