/**
 * `inferd eval FILE.jsonl`: asks every question of an evaluation set greedily, several at a time, and prints for each task how many
 * answers are exactly the wanted ones, and how many are what the file says another implementation gave (`got`). With --compare it is
 * compare.ts.
 */
import { setMaxListeners } from 'node:events';
import type { ChatCompletionParams } from '../../../rpc/client/types.js';
import { explain } from '../failure.js';
import { type ReachedDaemon, reachDaemon, whenLoaded } from '../reach.js';
import { formatDuration, table } from '../table.js';
import { CliError, configOptions, EXIT, type ExitCode, type Io, jsonOption, printJson, type Verb, type VerbInput } from '../verb.js';
import { compare } from './compare.js';
import { answerText, type EvalCase, readEvalSet } from './eval-set.js';

const defaultConcurrency = 8;
/** Wrong answers that are printed for people; --json has all. */
const shownWrong = 10;

export const evaluate: Verb = {
  name: 'eval',
  summary: 'run an evaluation set and print exact matches per task',
  details:
    'FILE holds one JSON object a line: messages, want, and optionally task, tools and got. Answers are greedy. Uses the running daemon ' +
    'if there is one, else (and always with --config or --set) an engine in this process. Wrong answers do not change the exit code. ' +
    'With --compare, FILE is a text, and what is printed is how far the distributions of the model are from those of the other one, which ' +
    'is taken as it is stored: both are loaded in this process.',
  args: [{ name: '<file>', doc: 'JSONL file; with --compare a text' }],
  options: [
    { flags: '--n <n>', doc: 'only the first n cases, or windows of a text', kind: 'int', range: [1, 2 ** 31] },
    {
      flags: '--concurrency <c>',
      doc: `requests in flight; ${defaultConcurrency} when not given`,
      kind: 'int',
      range: [1, 1024],
    },
    { flags: '--model <name>', doc: 'model to ask; the served one when not given', kind: 'text' },
    { flags: '--compare <name>', doc: 'a model of the same vocabulary, such as the one that was quantized', kind: 'text' },
    {
      flags: '--window <tokens>',
      doc: 'with --compare, tokens that are read together; 512 when not given',
      kind: 'int',
      range: [8, 2 ** 20],
    },
    ...configOptions,
    jsonOption,
  ],
  examples: [
    'inferd eval book.txt --model org/name:Q4_K_M --compare org/name',
    'inferd eval set.jsonl',
    'inferd eval set.jsonl --n 20 --concurrency 32 --json',
  ],
  run,
};

/** What came of one case: the answer's text, or why there is none. */
interface Outcome {
  readonly test: EvalCase;
  readonly answer: string | null;
  readonly failure: Error | null;
}

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const other = input.text('compare');
  const unused = other === undefined ? 'window' : 'concurrency';
  if (input.number(unused) !== undefined)
    throw new CliError(`--${unused} is of no use ${other === undefined ? 'without' : 'with'} --compare; leave it out`, EXIT.usage);
  if (other !== undefined) return compare(input, other);
  const file = input.args[0] ?? '';
  const cases = readEvalSet(file).slice(0, input.number('n'));
  const cancel = new AbortController();
  let reached: ReachedDaemon | null = null;
  const interrupt = (): void => {
    if (reached === null || cancel.signal.aborted) process.exit(EXIT.interrupted);
    cancel.abort();
  };
  process.on('SIGINT', interrupt);
  try {
    reached = await reachDaemon(input);
    const startedAt = performance.now();
    const outcomes = await askAll(reached, cases, input, cancel.signal);
    if (cancel.signal.aborted) return EXIT.interrupted;
    return printReport(input, file, outcomes, performance.now() - startedAt);
  } finally {
    await reached?.close();
    process.off('SIGINT', interrupt);
    if (io.stderr.isTTY === true) io.stderr.write('\r\u001b[K');
  }
}

/** Keeps `--concurrency` requests in flight; outcomes are in the order of the cases. */
async function askAll(
  reached: ReachedDaemon,
  cases: readonly EvalCase[],
  input: VerbInput,
  signal: AbortSignal,
): Promise<readonly Outcome[]> {
  const outcomes: Outcome[] = [];
  let next = 0;
  let done = 0;
  const worker = async (): Promise<void> => {
    for (let i = next++; i < cases.length && !signal.aborted; i = next++) {
      const test = cases[i] as EvalCase; // i < cases.length
      outcomes[i] = await askOne(reached, test, input.text('model'), signal);
      done++;
      showCount(input.io, done, cases.length);
    }
  };
  const workers = Math.min(input.number('concurrency') ?? defaultConcurrency, cases.length);
  // Each request in flight listens to the one signal; Node warns from eleven on.
  setMaxListeners(workers + 1, signal);
  await Promise.all(Array.from({ length: workers }, worker));
  return outcomes;
}

async function askOne({ client }: ReachedDaemon, test: EvalCase, model: string | undefined, signal: AbortSignal): Promise<Outcome> {
  // What stands in the file is checked by the daemon; a case that it refuses counts as failed.
  const body = {
    messages: [...test.messages],
    temperature: 0,
    stream: false as const,
    ...(test.tools === null ? {} : { tools: test.tools }),
    ...(model === undefined ? {} : { model }),
  } as unknown as ChatCompletionParams & { readonly stream: false };
  try {
    const answer = await whenLoaded(() => client.chat.completions.create(body, { signal }));
    const message = answer.choices[0]?.message;
    return message === undefined
      ? { test, answer: null, failure: new CliError('The daemon answered without a choice', EXIT.internal) }
      : { test, answer: answerText(message), failure: null };
  } catch (error) {
    return { test, answer: null, failure: explain(error) };
  }
}

function showCount(io: Io, done: number, total: number): void {
  if (io.stderr.isTTY === true) io.stderr.write(`\r\u001b[K${done} of ${total}`);
}

interface Tally {
  readonly task: string;
  n: number;
  exact: number;
  /** Cases whose line has `got`, and those of them whose answer equals it. */
  withGot: number;
  asGot: number;
  failed: number;
}

/** Counts per task, in the order in which tasks first appear, and the sum of all. */
export function tally(outcomes: readonly Outcome[]): { readonly tasks: readonly Tally[]; readonly all: Tally } {
  const empty = (task: string): Tally => ({ task, n: 0, exact: 0, withGot: 0, asGot: 0, failed: 0 });
  const all = empty('all');
  const tasks = new Map<string, Tally>();
  for (const { test, answer } of outcomes) {
    const own = tasks.get(test.task) ?? empty(test.task);
    tasks.set(test.task, own);
    for (const t of [own, all]) {
      t.n++;
      if (answer === null) t.failed++;
      if (answer === test.want) t.exact++;
      if (test.got !== null) t.withGot++;
      if (test.got !== null && answer === test.got) t.asGot++;
    }
  }
  return { tasks: [...tasks.values()], all };
}

function printReport(input: VerbInput, file: string, outcomes: readonly Outcome[], ms: number): ExitCode {
  const { io } = input;
  const { tasks, all } = tally(outcomes);
  const wrong = outcomes.filter((o) => o.answer !== o.test.want);
  const failure = outcomes.find((o) => o.failure !== null)?.failure ?? null;
  if (input.flag('json')) {
    const counts = ({ task, n, exact, withGot, asGot, failed }: Tally) => ({
      task,
      n,
      exact,
      exact_match: n === 0 ? null : exact / n,
      got_cases: withGot,
      got_equal: asGot,
      failed,
    });
    printJson(io, {
      file,
      seconds: ms / 1000,
      all: counts(all),
      tasks: tasks.map(counts),
      wrong: wrong.map(({ test, answer, failure: f }) => ({
        line: test.line,
        task: test.task,
        want: test.want,
        answer,
        error: f?.message ?? null,
      })),
    });
  } else {
    const ratio = (part: number, whole: number): string => (whole === 0 ? '-' : (part / whole).toFixed(3));
    const row = (t: Tally): string[] => [t.task, `${t.n}`, `${t.exact}`, ratio(t.exact, t.n), ratio(t.asGot, t.withGot), `${t.failed}`];
    io.stdout.write(table(['task', 'cases', 'exact', 'exact match', 'as got', 'failed'], [...tasks, all].map(row)));
    for (const { test, answer } of wrong.filter((o) => o.failure === null).slice(0, shownWrong))
      io.stdout.write(`\n${file}:${test.line} (${test.task})\n  want   ${JSON.stringify(test.want)}\n  answer ${JSON.stringify(answer)}\n`);
    if (wrong.length > shownWrong) io.stdout.write(`\n... and ${wrong.length - shownWrong} more; --json prints all\n`);
    io.stdout.write(`\n${all.n} cases in ${formatDuration(ms)}\n`);
  }
  if (failure === null) return EXIT.ok;
  io.stderr.write(`inferd: ${all.failed} of ${all.n} cases got no answer; the first: ${failure.message}\n`);
  return failure instanceof CliError ? failure.exitCode : EXIT.internal;
}
