/**
 * The error of everything that goes wrong before the engine starts: configuration, model folder, paths. Each problem is one plain
 * sentence. Thrown by config/**; the command line prints `message` and ends with `exitCode`.
 */

/** Exit codes of sysexits.h that configuration and model look-up use. */
export type ConfigExitCode = 65 | 66 | 78;

export class ConfigError extends Error {
  /** 78 = configuration, 66 = a file or model is missing, 65 = a file holds bad data. */
  readonly exitCode: ConfigExitCode;
  /** All problems found, one sentence each; `message` has one a line. */
  readonly problems: readonly string[];

  constructor(problems: string | readonly string[], exitCode: ConfigExitCode = 78) {
    const list = typeof problems === 'string' ? [problems] : problems;
    super(list.join('\n'));
    this.name = 'ConfigError';
    this.problems = list;
    this.exitCode = exitCode;
  }
}
