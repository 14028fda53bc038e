/**
 * Tells which chat templates may be rendered without a clock that kills them (time-box.ts), and counts what such a rendering does.
 * Used by chat-template.ts.
 *
 * What it saves (Node 20, 2 cores of Zen 4, the demo's template with one message): arming the clock starts a thread. Rendered again and
 * again, the template takes 25 us here and 79 with the clock; once in 40 ms, as prompts come, 130 and 320, so that each first token comes
 * 0.2 ms sooner. To be dropped when `node:vm` arms its clock for less. A type of node that is not listed, of a later release of the
 * package say, is not metered and gets the clock.
 *
 * A template is metered when each of its steps (an evaluated node of the syntax tree) takes time in proportion to the values that it
 * yields and to those that its operands yielded, so that counting all of them bounds the time of the whole. That holds for the nodes,
 * filters and methods listed here, with one addition: where a list or an object is turned into text or compared with text, all that
 * hangs on it is counted before. What cannot be bounded this way (macros, `replace`, sorting, lists built of variables) is not listed.
 */

/** A node of the syntax tree, or the whole of it. */
export interface SyntaxNode {
  type: string;
  /** Set here: a list or an object that this node yields may be walked to its leaves. */
  walked?: true;
  [field: string]: unknown;
}

/** Thrown when a rendering has done as much as it may; not an Error, so that nobody takes it for a fault. */
export const overdrawn = Symbol('more work than a metered template may do');

/** Characters of text that cost as much as one step. */
const CHARS_A_STEP = 16;
/** Steps that a member of a list or of an object costs. */
const MEMBER_STEPS = 2;
/** The interpreter raises and catches an error where a name is unknown. */
const UNKNOWN_STEPS = 20;
/** Nesting of a value that is walked. */
const MAX_DEPTH = 100;
/** Largest indent of JSON. */
const MAX_INDENT = 4;

/** What is left to do. One for each rendering. */
export class Meter {
  #steps: number;

  /** `steps`: one takes about a microsecond, at most three. */
  constructor(steps: number) {
    this.#steps = steps;
  }

  /** A step that yielded this value of the interpreter; `unknown`: a name that means nothing. @throws overdrawn */
  step(value: unknown, unknown: boolean): void {
    this.#take(1 + (unknown ? UNKNOWN_STEPS : sizeOf(value)));
  }

  /** All that hangs on a value of the interpreter. @throws overdrawn */
  walk(value: unknown, depth = 0): void {
    if (typeof value !== 'object' || value === null) return;
    if (depth > MAX_DEPTH) throw overdrawn;
    this.#take(sizeOf(value));
    for (const item of value instanceof Map ? value.values() : Array.isArray(value) ? value : []) {
      const inner = (item as { readonly value: unknown }).value; // proof: containers of the interpreter hold its values
      this.#take(1 + (typeof inner === 'string' ? sizeOf(inner) : 0));
      this.walk(inner, depth + 1);
    }
  }

  /** Plain data that is about to become values of the interpreter. @throws overdrawn */
  data(value: unknown, depth = 0): void {
    if (depth > MAX_DEPTH) throw overdrawn;
    if (typeof value === 'string') this.#take(sizeOf(value));
    else if (typeof value === 'object' && value !== null) {
      const items = Array.isArray(value) ? value : Object.values(value);
      this.#take(1 + sizeOf(items));
      for (const item of items) this.data(item, depth + 1);
    }
  }

  #take(steps: number): void {
    this.#steps -= steps;
    if (this.#steps < 0) throw overdrawn;
  }
}

function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length / CHARS_A_STEP;
  if (Array.isArray(value)) return value.length * MEMBER_STEPS;
  return value instanceof Map ? value.size * MEMBER_STEPS : 0;
}

const CONSTANTS: ReadonlySet<string> = new Set(['StringLiteral', 'IntegerLiteral', 'FloatLiteral']);
const LEAVES: ReadonlySet<string> = new Set([...CONSTANTS, 'Identifier', 'Comment', 'Break', 'Continue']);
const OPERATORS: ReadonlySet<string> = new Set(
  ['and', 'or', 'in', 'not in', '==', '!=', '<', '>', '<=', '>=', '+', '-', '*', '/', '//', '%', '~'], // not **: it has no use here
);
/** These may turn an operand into text. */
const TO_TEXT: ReadonlySet<string> = new Set(['+', '~', '==', '!=']);
const FILTERS: ReadonlySet<string> = new Set(['trim', 'length', 'first', 'last', 'list', 'upper', 'lower', 'capitalize', 'safe', 'items']);
const FUNCTIONS: ReadonlySet<string> = new Set(['raise_exception', 'namespace', 'strftime_now']);
const METHODS: ReadonlySet<string> = new Set([
  'strip',
  'lstrip',
  'rstrip',
  'startswith',
  'endswith',
  'upper',
  'lower',
  'split',
  'get',
  'items',
  'keys',
  'values',
]);

/** True when the template can be metered; marks the nodes whose value may be walked. */
export function makeMetered(program: SyntaxNode): boolean {
  return body(program['body']);
}

/** What stands in a body is written out: a list or an object as text. */
function body(nodes: unknown): boolean {
  return nodes === undefined || (Array.isArray(nodes) && nodes.every(walkedFits));
}

function walkedFits(node: unknown): boolean {
  if (isNode(node)) node.walked = true;
  return fits(node);
}

/** `node` absent is nothing to do. */
function fits(node: unknown): boolean {
  if (node === undefined || node === null) return true;
  if (!isNode(node)) return false;
  switch (node.type) {
    case 'Set':
      return isTarget(node['assignee']) && fits(node['value']) && body(node['body']);
    case 'If':
      return fits(node['test']) && body(node['body']) && body(node['alternate']);
    case 'For':
      return isTarget(node['loopvar']) && walkedFits(node['iterable']) && body(node['body']) && body(node['defaultBlock']);
    case 'SelectExpression':
      return fits(node['lhs']) && fits(node['test']);
    case 'Ternary':
      return fits(node['condition']) && fits(node['trueExpr']) && fits(node['falseExpr']);
    case 'UnaryExpression':
      return fits(node['argument']);
    case 'TestExpression':
      return fits(node['operand']);
    case 'ArrayLiteral':
    case 'TupleLiteral':
      return Array.isArray(node['value']) && node['value'].every((item: unknown) => isNode(item) && CONSTANTS.has(item.type));
    case 'BinaryExpression':
      return binaryFits(node);
    case 'MemberExpression':
      return fits(node['object']) && (node['computed'] !== true || indexFits(node['property']));
    case 'FilterExpression':
      return fits(node['operand']) && filterFits(node['filter'], node['operand']);
    case 'CallExpression':
      return calleeFits(node['callee']) && Array.isArray(node['args']) && node['args'].every(argumentFits);
    default:
      return LEAVES.has(node.type);
  }
}

function binaryFits(node: SyntaxNode): boolean {
  const operator = String((node['operator'] as { readonly value?: unknown } | undefined)?.value);
  const side = TO_TEXT.has(operator) ? walkedFits : fits;
  return OPERATORS.has(operator) && side(node['left']) && side(node['right']);
}

function indexFits(property: unknown): boolean {
  if (!isNode(property) || property.type !== 'SliceExpression') return fits(property);
  return fits(property['start']) && fits(property['stop']) && fits(property['step']);
}

function filterFits(filter: unknown, operand: unknown): boolean {
  if (!isNode(filter) || !isNode(operand)) return false;
  if (filter.type === 'Identifier') {
    if (filter['value'] !== 'tojson') return FILTERS.has(String(filter['value']));
    operand.walked = true;
    return true;
  }
  const { type, callee, args } = filter;
  if (type !== 'CallExpression' || !isNode(callee) || !Array.isArray(args)) return false;
  if (callee['value'] === 'default') return args.every(argumentFits);
  operand.walked = true;
  return callee['value'] === 'tojson' && args.every(isSmallIndent);
}

function isSmallIndent(argument: unknown): boolean {
  if (!isNode(argument) || argument.type !== 'KeywordArgumentExpression') return false;
  const { key, value } = argument;
  return (
    isNode(key) && key['value'] === 'indent' && isNode(value) && value.type === 'IntegerLiteral' && Number(value['value']) <= MAX_INDENT
  );
}

function calleeFits(callee: unknown): boolean {
  if (!isNode(callee)) return false;
  if (callee.type === 'Identifier') return FUNCTIONS.has(String(callee['value']));
  const { type, computed, object, property } = callee;
  return type === 'MemberExpression' && computed !== true && fits(object) && isNode(property) && METHODS.has(String(property['value']));
}

function argumentFits(argument: unknown): boolean {
  return isNode(argument) && walkedFits(argument.type === 'KeywordArgumentExpression' ? argument['value'] : argument);
}

/** What a value may be given to. */
function isTarget(node: unknown): boolean {
  if (!isNode(node)) return false;
  if (node.type === 'MemberExpression') return fits(node);
  if (node.type === 'TupleLiteral') return Array.isArray(node['value']) && node['value'].every(isTarget);
  return node.type === 'Identifier';
}

export function isNode(value: unknown): value is SyntaxNode {
  return typeof value === 'object' && value !== null && typeof (value as { type?: unknown }).type === 'string';
}
