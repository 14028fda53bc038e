/**
 * What every service manager can do. The verbs of `inferd service` know no more than this; a new manager is a file with a ServiceManager and
 * a line in this-system.ts.
 */
import type { ServiceSpec } from './spec.js';

/** A file that the manager reads. */
export interface ServiceFile {
  readonly path: string;
  readonly text: string;
}

/** What a manager says of our service. */
export interface ServiceStatus {
  /** Where it is described, whether or not that file is there. */
  readonly file: string;
  readonly installed: boolean;
  /** Starts by itself, at login or at the first connection; null where that cannot be told. */
  readonly enabled: boolean | null;
  /** In the manager's own words, such as "active (running)"; null where the manager cannot be asked. */
  readonly state: string | null;
  /** It runs, or starts at the first connection. */
  readonly running: boolean;
  readonly pid: number | null;
  /** More lines for people. */
  readonly notes: readonly string[];
}

export interface ServiceManager {
  /** For sentences: "systemd". */
  readonly name: string;
  /** How to read the log of the service. */
  readonly logCommand: string;
  /** All files that this manager may have of us. */
  readonly paths: readonly string[];
  /** What the files should hold. @throws StartError for what cannot be written into them */
  files(spec: ServiceSpec, socket: boolean): readonly ServiceFile[];
  /**
   * Tells the manager of the files and starts the service, or starts it again where something `changed`. Resolves when the daemon is ready.
   * @throws StartError with what the user has to do, where the manager does not answer or the service does not start
   */
  activate(changed: boolean, socket: boolean): Promise<void>;
  /** Stops the service, and forgets that it starts by itself. Does nothing where the manager does not answer. */
  deactivate(): Promise<void>;
  /** After the files are gone. */
  forget(): Promise<void>;
  status(): Promise<ServiceStatus>;
}
