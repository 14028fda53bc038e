/**
 * Renders a model's chat template with @huggingface/jinja (this file is its only user), bounded in time, size and memory.
 * Parsed once at start-up and rendered for each chat prompt by encode/encode.ts in the tokenizer thread, or, where that takes long, in a
 * thread of its own (slow-render.ts).
 *
 * A template sees data only: no host object and no function but those below. What could hurt is an endless loop (killed by
 * time-box.ts, or counted by template-meter.ts where that is enough) or a value that grows without end (every value that an
 * expression yields is measured, as is `range`).
 *
 * Literals that a template *looks for* in the messages ('</think>' in content, content.split('</think>'), startswith) must look
 * like the messages do, and those are protected by sentinels (sentinels.ts). So such literals are taken out of the syntax tree and
 * become variables that are set for each prompt; literals that a template *writes* stay as they are.
 */
import * as jinja from '@huggingface/jinja';
import { InferdError } from '../../messages/errors.js';
import { strftime } from './strftime.js';
import { isNode, Meter, makeMetered, overdrawn, type SyntaxNode } from './template-meter.js';
import { TimeBox } from './time-box.js';

export interface TemplateLimits {
  /** Rendering, and parsing at start-up, is killed after this time; processor time. */
  readonly maxTemplateMs: number;
  readonly maxTemplateBytes: number;
  /** Rendered text, UTF-8 bytes; also the longest string inside a template. */
  readonly maxTemplateOutputBytes: number;
}

/** What a template sees, by name: plain data. */
export type Variables = Readonly<Record<string, unknown>>;

interface RuntimeValue {
  readonly type: string;
  readonly value: unknown;
}

interface Scope {
  readonly variables: ReadonlyMap<string, unknown>;
  set(name: string, value: unknown): unknown;
}

/**
 * The package's own declarations import each other without file endings, which this project's module resolution cannot follow;
 * these are the parts used here (0.5.11).
 */
interface JinjaLibrary {
  tokenize(source: string, options: { lstrip_blocks: boolean; trim_blocks: boolean }): unknown;
  parse(tokens: unknown): SyntaxNode;
  Environment: new (parent?: Scope) => Scope;
  Interpreter: new (
    scope: Scope,
  ) => { run(program: SyntaxNode): RuntimeValue; evaluate(node: SyntaxNode | undefined, scope: Scope): RuntimeValue };
}

const { Environment, Interpreter, parse, tokenize } = jinja as unknown as JinjaLibrary;

/** Items of one list inside a template, and of one `range`. */
const MAX_LIST = 100_000;
const MAX_MESSAGE_CHARS = 300;
/** Parsing is a start-up cost and may take longer than one rendering. */
const PARSE_MS_FACTOR = 4;
/** Most that is rendered at once: a few milliseconds, and some fifty messages in a usual template. */
const METERED_STEPS = 5000;

/** What the template itself, or a limit, says against the messages. Its text may be shown to the caller. */
class TemplateError extends Error {}

export class ChatTemplate {
  readonly source: string;
  /** The template may write \uXXXX escapes of what it is given. */
  readonly escapesUnicode: boolean;
  readonly #program: SyntaxNode;
  readonly #literals: readonly { readonly name: string; readonly text: string }[];
  readonly #limits: TemplateLimits;
  readonly #timeBox = new TimeBox();
  readonly #metered: boolean;

  /**
   * @param touches tells which literals look different inside protected text.
   * @throws Error with one sentence when the template is too large or not valid.
   */
  constructor(source: string, limits: TemplateLimits, touches: (literal: string) => boolean) {
    if (Buffer.byteLength(source, 'utf8') > limits.maxTemplateBytes) {
      throw new Error(`The chat template of this model is larger than ${limits.maxTemplateBytes} bytes`);
    }
    this.source = source;
    this.escapesUnicode = source.includes('ensure_ascii');
    this.#limits = limits;
    let parsed: { readonly value: SyntaxNode } | null;
    try {
      parsed = this.#timeBox.run(
        () => parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true })),
        limits.maxTemplateMs * PARSE_MS_FACTOR,
      );
    } catch (error) {
      throw new Error(`The chat template of this model is not valid: ${shortReason(error) ?? 'it cannot be parsed'}`, { cause: error });
    }
    if (parsed === null) throw new Error('The chat template of this model takes too long to parse');
    this.#program = parsed.value;
    this.#metered = makeMetered(parsed.value);
    this.#literals = takeOutSearchedLiterals(parsed.value, touches);
  }

  /** Literals that the template looks for in the messages. */
  get searched(): readonly string[] {
    return this.#literals.map(({ text }) => text);
  }

  /**
   * @param variables what the template sees; names of its functions and constants are not overridden.
   * @param searched the literals of `this.searched` as they look inside the variables.
   * @throws InferdError invalid_params with the template's own message, or saying which limit was hit.
   */
  render(variables: Variables, searched: readonly string[]): string {
    const { maxTemplateMs } = this.#limits;
    const text = this.tryRender(variables, searched, maxTemplateMs);
    if (text === null) throw new InferdError('invalid_params', `The chat template was stopped after ${maxTemplateMs} ms`);
    return text;
  }

  /** As `render`, but null when it is not done within `limitMs`. */
  tryRender(variables: Variables, searched: readonly string[], limitMs: number): string | null {
    return this.#checked(() => this.#timeBox.run(() => this.#run(variables, searched, null), limitMs)?.value ?? null);
  }

  /** As `render`, for a template whose work can be counted (template-meter.ts) and is little, some milliseconds at most: else null. */
  renderAtOnce(variables: Variables, searched: readonly string[]): string | null {
    if (!this.#metered) return null;
    return this.#checked(() => {
      try {
        const meter = new Meter(METERED_STEPS);
        meter.data(variables);
        return this.#run(variables, searched, meter);
      } catch (error) {
        if (error === overdrawn) return null;
        throw error;
      }
    });
  }

  #run(variables: Variables, searched: readonly string[], meter: Meter | null): string {
    const environment = new Environment(globalScope);
    for (const [name, value] of Object.entries(variables)) if (!globalScope.variables.has(name)) environment.set(name, value);
    for (const [i, { name, text }] of this.#literals.entries()) environment.set(name, searched[i] ?? text);
    return String(new BoundedInterpreter(environment, this.#limits.maxTemplateOutputBytes, meter).run(this.#program).value);
  }

  #checked(render: () => string | null): string | null {
    const { maxTemplateOutputBytes } = this.#limits;
    let text: string | null;
    try {
      text = render();
    } catch (error) {
      const reason = shortReason(error);
      throw new InferdError(
        'invalid_params',
        reason === null ? 'The chat template cannot be applied to these messages' : `Chat template: ${reason}`,
      );
    }
    if (text !== null && Buffer.byteLength(text, 'utf8') > maxTemplateOutputBytes)
      throw new InferdError('invalid_params', tooLong(maxTemplateOutputBytes));
    return text;
  }
}

const tooLong = (bytes: number): string => `The chat template writes more than ${bytes} bytes`;

/** The sentence of an error that a template or its interpreter raised on purpose; null for faults inside the interpreter. */
function shortReason(error: unknown): string | null {
  if (!(error instanceof Error) || error instanceof TypeError || error instanceof RangeError || error.message === '') return null;
  return error.message.length > MAX_MESSAGE_CHARS ? `${error.message.slice(0, MAX_MESSAGE_CHARS)}...` : error.message;
}

/** Checks the size of every value that an expression or statement yields, so that doubling a string or list ends early. */
class BoundedInterpreter extends Interpreter {
  readonly #maxChars: number;
  /** Counts the work; null where a clock bounds it. */
  readonly #meter: Meter | null;

  constructor(scope: Scope, maxChars: number, meter: Meter | null) {
    super(scope);
    this.#maxChars = maxChars;
    this.#meter = meter;
  }

  override evaluate(node: SyntaxNode | undefined, scope: Scope): RuntimeValue {
    const result = super.evaluate(node, scope);
    const { value } = result;
    if (this.#meter !== null) {
      this.#meter.step(value, result.type === 'UndefinedValue' && node?.type === 'Identifier');
      if (node?.walked) this.#meter.walk(value);
    }
    if (typeof value === 'string') {
      if (value.length > this.#maxChars) throw new TemplateError(tooLong(this.#maxChars));
    } else if (Array.isArray(value) && value.length > MAX_LIST) throw new TemplateError(`A list has more than ${MAX_LIST} items`);
    return result;
  }
}

/** Functions and constants of every template, as Hugging Face's renderer has them. */
const globals: Readonly<Record<string, unknown>> = {
  true: true,
  True: true,
  false: false,
  False: false,
  none: null,
  None: null,
  raise_exception: (message: unknown) => {
    throw new TemplateError(typeof message === 'string' && message !== '' ? message : 'the messages were refused');
  },
  strftime_now: (format: unknown) => strftime(new Date(), String(format)),
  range: (first: unknown, second?: unknown, third?: unknown) => boundedRange(first, second, third),
};

/** The outer scope of every rendering; templates set their variables in an inner one. */
const globalScope = new Environment();
for (const [name, value] of Object.entries(globals)) globalScope.set(name, value);

function boundedRange(first: unknown, second: unknown, third: unknown): number[] {
  const start = second === undefined ? 0 : Number(first);
  const stop = Number(second === undefined ? first : second);
  const step = third === undefined ? 1 : Number(third);
  const length = step === 0 ? Number.NaN : Math.max(0, Math.ceil((stop - start) / step));
  if (!Number.isFinite(length)) throw new TemplateError('range() needs finite numbers and a step other than 0');
  if (length > MAX_LIST) throw new TemplateError(`range() gives more than ${MAX_LIST} items`);
  return Array.from({ length }, (_, i) => start + i * step);
}

/** String methods and filters whose first argument is looked for in the text. */
const SEARCHES: ReadonlySet<string> = new Set([
  'split',
  'rsplit',
  'startswith',
  'endswith',
  'replace',
  'find',
  'rfind',
  'index',
  'count',
  'strip',
  'lstrip',
  'rstrip',
]);
const COMPARISONS: ReadonlySet<string> = new Set(['in', 'not in', '==', '!=']);

/** Replaces searched literals by variables, in place, and returns them. Identifier nodes are plain data to the interpreter. */
function takeOutSearchedLiterals(program: SyntaxNode, touches: (literal: string) => boolean): { name: string; text: string }[] {
  const literals: { name: string; text: string }[] = [];
  const take = (node: unknown): void => {
    if (!isNode(node)) return;
    if (node.type === 'ArrayLiteral' || node.type === 'TupleLiteral') {
      if (Array.isArray(node['value'])) for (const item of node['value']) take(item);
    } else if (node.type === 'StringLiteral' && typeof node['value'] === 'string' && touches(node['value'])) {
      const name = `inferd literal ${literals.length}`; // with spaces: no template can name it
      literals.push({ name, text: node['value'] });
      node.type = 'Identifier';
      node['value'] = name;
    }
  };
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) for (const item of value) visit(item);
    else if (value instanceof Map) {
      for (const [key, item] of value) {
        visit(key);
        visit(item);
      }
    } else if (isNode(value)) {
      const operator = value['operator'];
      if (value.type === 'BinaryExpression' && isNode(operator) && COMPARISONS.has(String(operator['value']))) {
        take(value['left']);
        take(value['right']);
      } else if (value.type === 'CallExpression' && Array.isArray(value['args']) && SEARCHES.has(calledName(value['callee'])))
        take(value['args'][0]);
      for (const child of Object.values(value)) visit(child);
    }
  };
  visit(program);
  return literals;
}

/** `split` of `x.split(...)`, `replace` of the filter `x | replace(...)`. */
function calledName(callee: unknown): string {
  if (!isNode(callee)) return '';
  if (callee.type === 'MemberExpression') return callee['computed'] === true ? '' : calledName(callee['property']);
  return callee.type === 'Identifier' && typeof callee['value'] === 'string' ? callee['value'] : '';
}
