/**
 * Turns the verbs into a command line: parsing, help, and one sentence for whatever goes wrong. The only user of commander.
 *
 * Every way out is here: a verb's exit code, help and version (0), a usage error (64), or the exit code that an error carries. No stack
 * trace is printed without --verbose. Called by main.ts and by tests.
 */
import { Command, type CommanderError, Option } from 'commander';
import { ConfigError } from '../../config/error.js';
import { similar } from '../../config/nearest.js';
import { options } from '../../config/options.js';
import { StartError } from '../start-error.js';
import { CliError, EXIT, type ExitCode, type Io, type Verb, type VerbInput, type VerbOption } from './verb.js';

export interface Program {
  readonly version: string;
  readonly verbs: readonly Verb[];
  readonly io: Io;
}

/** A command line that cannot be read; `command` is where it went wrong. */
class UsageError extends Error {
  readonly reason: CommanderError;
  readonly command: Command;
  constructor(reason: CommanderError, command: Command) {
    super(reason.message);
    this.reason = reason;
    this.command = command;
  }
}

/** Runs one command line (without "node" and the script) and returns its exit code. Never throws. */
export async function runProgram(program: Program, argv: readonly string[]): Promise<ExitCode> {
  const { io } = program;
  const verbose = argv.slice(0, argv.includes('--') ? argv.indexOf('--') : undefined).includes('--verbose');
  let code: ExitCode = EXIT.ok;
  const root = prepare(new Command('inferd'), io)
    .description('A local LLM inference daemon: JSON-RPC 2.0 over WebSocket.')
    .version(program.version, '--version', 'print the version')
    .helpCommand('help [verb]', 'explain a verb')
    .option('--verbose', 'print stack traces of failures')
    .addHelpText('after', examples(['inferd serve', 'inferd run "What is 123 + 456?"', 'inferd chat', 'inferd help run']));
  root.action(() => root.outputHelp());
  for (const verb of program.verbs) root.addCommand(build(verb, io, (c) => (code = c)));
  try {
    await root.parseAsync(helpOfInner(argv, program.verbs), { from: 'user' });
    return code;
  } catch (error) {
    return report(error, io, verbose);
  }
}

/** "help VERB INNER" as "VERB INNER --help": the parser looks at one word. A word that names no inner verb is left to be refused. */
function helpOfInner(argv: readonly string[], verbs: readonly Verb[]): string[] {
  const [first, name, inner] = argv;
  const within = verbs.find((verb) => verb.name === name)?.verbs;
  if (first !== 'help' || name === undefined || inner === undefined || within === undefined) return [...argv];
  return within.some((verb) => verb.name === inner) ? [name, inner, '--help'] : [name, inner];
}

/** Prints the sentence of an error and returns its exit code. */
export function report(error: unknown, io: Io, verbose: boolean): ExitCode {
  if (error instanceof UsageError) {
    if (error.reason.exitCode === 0) return EXIT.ok;
    io.stderr.write(`inferd: ${usageSentence(error)}\n`);
    return EXIT.usage;
  }
  const known = error instanceof CliError || error instanceof ConfigError || error instanceof StartError;
  const message = error instanceof Error ? error.message : String(error);
  if (known) for (const line of message.split('\n')) io.stderr.write(`inferd: ${line.replace(/\.$/, '')}\n`);
  else io.stderr.write(`inferd: internal error: ${message.split('\n')[0]}${verbose ? '' : '; run it again with --verbose for details'}\n`);
  if (verbose && error instanceof Error) io.stderr.write(`${error.stack}\n`);
  if (verbose && error instanceof Error && error.cause instanceof Error) io.stderr.write(`caused by ${error.cause.stack}\n`);
  return known ? error.exitCode : EXIT.internal;
}

function prepare(command: Command, io: Io): Command {
  return command
    .exitOverride((reason) => {
      throw new UsageError(reason, command);
    })
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: () => undefined,
      getOutHelpWidth: () => Math.min(io.stdout.columns ?? 100, 120),
    })
    .helpOption('-h, --help', 'print this help')
    .showSuggestionAfterError(false)
    .allowExcessArguments(false);
}

const examples = (lines: readonly string[]): string => `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}\n`;

function build(verb: Verb, io: Io, done: (code: ExitCode) => void): Command {
  const command = prepare(new Command(verb.name), io).summary(verb.summary);
  const title = `${verb.summary[0]?.toUpperCase()}${verb.summary.slice(1)}.`;
  command.description(verb.details === undefined ? title : `${title} ${verb.details}`);
  for (const arg of verb.args ?? []) command.argument(arg.name, arg.doc);
  for (const option of verb.options ?? []) command.addOption(parsed(option));
  command.option('--verbose', 'print stack traces of failures').addHelpText('after', examples(verb.examples));
  for (const inner of verb.verbs ?? []) command.addCommand(build(inner, io, done));
  const names = (verb.verbs ?? []).map((inner) => inner.name).join(', ');
  command.action(async () => {
    if (verb.run === undefined)
      throw new CliError(`"inferd ${verb.name}" needs one of: ${names}; for example: ${verb.examples[0]}`, EXIT.usage);
    done(await verb.run(inputOf(command, io)));
  });
  return command;
}

function parsed(option: VerbOption): Option {
  const made = new Option(option.flags, option.doc);
  const { kind, range } = option;
  if (kind === 'list') return made.argParser<readonly string[]>((value, before) => [...(before ?? []), value]);
  if (kind !== 'int' && kind !== 'float') return made;
  return made.argParser((value) => {
    const number = Number(value);
    const [min, max] = range ?? [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];
    if (value.trim() !== '' && number >= min && number <= max && (kind === 'float' || Number.isInteger(number))) return number;
    const what = kind === 'int' ? 'a whole number' : 'a number';
    throw new CliError(
      `${made.long} ${JSON.stringify(value.slice(0, 40))} is not allowed; expected ${what} from ${min} to ${max}`,
      EXIT.usage,
    );
  });
}

function inputOf(command: Command, io: Io): VerbInput {
  const values = command.opts<Record<string, unknown>>();
  const get = (name: string): unknown => values[name.replaceAll(/-(\w)/g, (_, c: string) => c.toUpperCase())];
  return {
    args: command.args,
    io,
    flag: (name) => get(name) === true,
    text: (name) => get(name) as string | undefined,
    number: (name) => get(name) as number | undefined,
    list: (name) => (get(name) as readonly string[] | undefined) ?? [],
  };
}

/** One sentence for a command line that the parser refused, with the nearest known name. */
function usageSentence({ reason, command }: UsageError): string {
  const help = `see "${fullName(command)} --help"`;
  const [, quoted] = /'([^']*)'/.exec(reason.message) ?? [];
  switch (reason.code) {
    case 'commander.unknownOption': {
      const flags = command.options.flatMap((o) => (o.long === undefined ? [] : [o.long]));
      const typed = quoted?.replace(/=.*$/s, '') ?? '';
      const meant = (flags.includes('--set') ? settingOf(typed) : null) ?? similar(typed, [...flags, '--help']);
      return `unknown option ${quoted} of "${fullName(command)}"; ${meant === null ? help : `did you mean ${meant}? (${help})`}`;
    }
    case 'commander.help': // "inferd help WORD"
    case 'commander.unknownCommand':
    case 'commander.excessArguments': {
      const names = command.commands.map((c) => c.name());
      const surplus = command.args[reason.code === 'commander.help' ? 1 : command.registeredArguments.length] ?? quoted ?? '';
      if (names.length === 0) return `"${fullName(command)}" does not take "${surplus.slice(0, 40)}"; ${help}`;
      const meant = similar(surplus, names);
      return `unknown command "${surplus}"; ${meant === null ? help : `did you mean "${fullName(command)} ${meant}"? (${help})`}`;
    }
    case 'commander.missingArgument':
      return `"${fullName(command)}" needs <${quoted}>; ${help}`;
    case 'commander.optionMissingArgument':
      return `option ${quoted} needs a value; ${help}`;
    default:
      return `${reason.message.replace(/^error: /, '').replace(/\s+/g, ' ')}; ${help}`;
  }
}

/** Of a flag that is called like an option of the configuration, the first of them: how that is set. */
function settingOf(flag: string): string | null {
  const key = flag.replace(/^--/, '').replaceAll('-', '_');
  const named = options.find((option) => option.key === key || option.key === `${key}_name`);
  return named === undefined ? null : `--set ${named.name}=...`;
}

function fullName(command: Command): string {
  return command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
}
