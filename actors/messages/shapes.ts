/**
 * The records that cross threads for each request and each step, by the names of their members in the order in which they are made. Both
 * ends of a link know this list, so that such a record travels as its number and its values; any other one brings its names along, right
 * but slower (codec.ts). With the list a Submit takes 2.4 us to pack and 0.6 to unpack, without it 4.0 and 5.4; Deltas 0.7 and 0.2, not
 * 1.2 and 1.0, each many times in a row. A member that is added to a message belongs here too; a test tells.
 */
import type { CallReply, TokenizerCall } from './calls.js';
import type {
  Abort,
  Admit,
  ChatMessage,
  Delta,
  Deltas,
  Encoded,
  GenerationParams,
  PromptInput,
  Started,
  Submit,
  Tokens,
} from './requests.js';
import { samplingParams } from './sampling.js';

type Shape = readonly string[];

/** Refuses a name that no member of the message has. */
const shape =
  <T>() =>
  (...names: readonly (T extends unknown ? keyof T & string : never)[]): Shape =>
    names;

const prompt = shape<PromptInput>();
const tokens = shape<Tokens>();
const deltas = shape<Deltas>();
const delta = shape<Delta>();

/** At most 32: their numbers take one byte then. */
export const messageShapes: readonly Shape[] = [
  shape<Submit>()('k', 'id', 'prompt', 'params', 'arrivalMs', 'turn', 'client', 'size'),
  prompt('kind', 'text', 'addSpecialTokens'),
  prompt('kind', 'ids'),
  prompt('kind', 'messages', 'addGenerationPrompt'),
  shape<ChatMessage>()('role', 'content'),
  shape<GenerationParams>()(
    'sampling',
    'seedLo',
    'seedHi',
    'topLogprobs',
    'promptLogprobs',
    'logitBias',
    'maxTokens',
    'stop',
    'stopTokenIds',
    'includeStop',
    'ignoreEos',
    'skipSpecialTokens',
    'n',
    'bestOf',
    'priority',
    'truncatePromptTokens',
    'echo',
    'constraint',
  ),
  Object.keys(samplingParams),
  shape<Admit>()(
    'k',
    'id',
    'promptIds',
    'generated',
    'finished',
    'samplingRow',
    'bias',
    'maxTokens',
    'stopTokenIds',
    'ignoreEos',
    'bestOf',
    'priority',
    'arrivalMs',
    'turn',
  ),
  shape<Encoded>()('k', 'id', 'promptIds', 'maxTokens'),
  tokens('k', 'ids', 'indices', 'tokens', 'finishes'),
  tokens('k', 'ids', 'indices', 'tokens', 'finishes', 'started'),
  shape<Started>()('id', 'queueMs', 'cachedTokens'),
  deltas('k', 'deltas'),
  deltas('k', 'deltas', 'started'),
  delta('id', 'index', 'text', 'tokens'),
  delta('id', 'index', 'text', 'tokens', 'finish'),
  delta('id', 'index', 'text', 'tokens', 'finish', 'stopReason'),
  shape<Abort>()('k', 'ids'),
  shape<TokenizerCall>()('k', 'prompt', 'call', 'client', 'size'),
  shape<CallReply>()('k', 'call', 'ok', 'value'),
];
