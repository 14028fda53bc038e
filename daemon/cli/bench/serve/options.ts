/** The options of `inferd bench serve`: ATOM's, with vLLM's names where it has more. What they mean is checked in settings.ts. */
import { jsonOption, type VerbOption } from '../../verb.js';
import { backends } from './backends/table.js';
import { datasets } from './datasets/table.js';
import { defaults, mostPrompts } from './settings.js';

/** Tokens of one prompt or answer. */
const mostTokens = 2 ** 24;
const list = (table: readonly { readonly name: string; readonly doc: string }[]): string =>
  table.map((e) => `${e.name} (${e.doc})`).join(', ');
const text = (flags: string, doc: string): VerbOption => ({ flags, doc, kind: 'text' });
const several = (flags: string, doc: string): VerbOption => ({ flags, doc, kind: 'list' });
const tokens = (flags: string, doc: string, least = 1): VerbOption => ({ flags, doc, kind: 'int', range: [least, mostTokens] });
const perSecond = (flags: string, doc: string): VerbOption => ({ flags, doc, kind: 'float', range: [1e-6, 1e6] });

const server: readonly VerbOption[] = [
  text('--backend <name>', `${list(backends)}; ${defaults.backend} when not given`),
  text('--base-url <url>', 'where the server is; the running daemon for inferd-ws, else port 8000 of this machine'),
  text('--host <host>', 'instead of --base-url; 127.0.0.1 when not given'),
  { flags: '--port <n>', doc: 'instead of --base-url', kind: 'int', range: [1, 65535] },
  text('--endpoint <path>', "path of the method; the backend's usual one when not given"),
  several('--header <name=value...>', 'header of each request; may be repeated'),
  text('--model <name>', 'model to ask; the first one that the server names when not given'),
  text('--served-model-name <name>', 'what requests call it, where --model is another name'),
  text('--tokenizer <name>', 'only noted in the result: tokens are counted by the server'),
  text('--tokenizer-mode <mode>', 'has no effect: for command lines of other benchmarks'),
  { flags: '--trust-remote-code', doc: 'has no effect, as --tokenizer-mode' },
];

/** Which prompts, and how many; of `inferd bench offline` too. */
export const promptOptions: readonly VerbOption[] = [
  text('--dataset-name <name>', `${list(datasets)}; ${defaults.dataset} when not given`),
  text('--dataset-path <file>', 'file of the dataset'),
  { flags: '--num-prompts <n>', doc: `requests; ${defaults.numPrompts} when not given`, kind: 'int', range: [1, mostPrompts] },
  {
    flags: '--num-warmups <n>',
    doc: `requests before that are not counted; ${defaults.warmups} when not given`,
    kind: 'int',
    range: [1, mostPrompts],
  },
  {
    flags: '--seed <n>',
    doc: `of prompts and arrivals; ${defaults.seed} when not given`,
    kind: 'int',
    range: [0, Number.MAX_SAFE_INTEGER],
  },
  tokens('--random-input-len <n>', `longest prompt; ${defaults.randomInputLen} when not given`),
  tokens('--random-output-len <n>', `longest answer; ${defaults.randomOutputLen} when not given`),
  { flags: '--random-range-ratio <r>', doc: 'shortest length as a share of the longest; 1 when not given', kind: 'float', range: [0, 1] },
  tokens('--random-prefix-len <n>', 'tokens that all prompts begin with, added to them; 0 when not given', 0),
  tokens('--sharegpt-output-len <n>', 'length of each answer; as in the dataset when not given'),
  tokens('--sonnet-input-len <n>', `longest prompt; ${defaults.sonnetInputLen} when not given`),
  tokens('--sonnet-output-len <n>', `longest answer; ${defaults.sonnetOutputLen} when not given`),
  tokens('--sonnet-prefix-len <n>', `tokens that all prompts begin with; ${defaults.sonnetPrefixLen} when not given`, 0),
  {
    flags: '--vocab-size <n>',
    doc: 'random token ids are below it; what the server says, or 32000, when not given',
    kind: 'int',
    range: [2, mostTokens],
  },
];

const answers: readonly VerbOption[] = [
  { flags: '--ignore-eos', doc: 'answers go on to their full length' },
  { flags: '--best-of <n>', doc: 'answers to make of which the best is given', kind: 'int', range: [1, 64] },
  { flags: '--logprobs <n>', doc: 'log-probabilities of each token, with so many alternatives', kind: 'int', range: [0, 64] },
];

const load: readonly VerbOption[] = [
  text('--request-rate <r>', 'requests a second on average; inf, all at once, when not given'),
  {
    flags: '--burstiness <b>',
    doc: 'shape of the gaps: 1 Poisson, less bursts, more even; 1 when not given',
    kind: 'float',
    range: [1e-3, 1e6],
  },
  { flags: '--max-concurrency <n>', doc: 'requests in flight at most', kind: 'int', range: [1, 2 ** 16] },
  text('--ramp-up-strategy <s>', 'linear or exponential, from the start rate to the end rate'),
  perSecond('--ramp-up-start-rps <r>', 'requests a second at the start of a ramp'),
  perSecond('--ramp-up-end-rps <r>', 'requests a second at its end'),
];

const results: readonly VerbOption[] = [
  text('--percentile-metrics <names>', `of ttft,tpot,itl,e2el; ${defaults.metrics} when not given`),
  text('--metric-percentiles <list>', `such as 50,90,99; ${defaults.percentiles} when not given`),
  several('--goodput <metric:ms...>', 'count requests within limits of ttft, tpot and e2el'),
  { flags: '--save-result', doc: 'write the result to a file' },
  { flags: '--save-detailed', doc: 'the same, with start, TPOT, E2EL and chunks of each request; with --json these too' },
  text('--result-dir <folder>', 'where it goes; this folder when not given'),
  text('--result-filename <name>', 'its name; backend, rate, concurrency, model and time when not given'),
  several('--metadata <name=value...>', 'noted in the result; may be repeated'),
  { flags: '--profile', doc: 'record a profile of the server meanwhile' },
  { flags: '--disable-tqdm', doc: 'no progress line' },
  jsonOption,
];

export const serveOptions: readonly VerbOption[] = [...server, ...promptOptions, ...answers, ...load, ...results];
