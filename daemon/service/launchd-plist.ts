/**
 * The text of the launchd agent. Pure.
 *
 * launchd starts again whatever ends with another code than 0, with no way to name codes that no restart cures; ThrottleInterval keeps that
 * to one try a minute. It knows no files of variables, so secrets belong into the configuration.
 */
import { EXIT } from '../exit-code.js';
import { StartError } from '../start-error.js';
import type { ServiceSpec } from './spec.js';

export const LABEL = 'inferd.daemon';

const THROTTLE_S = 60;

type Value = string | number | boolean | readonly Value[] | { readonly [key: string]: Value };

/** `log`: the file that takes what the daemon prints. @throws StartError for a text that XML cannot hold */
export function agentPlist(spec: ServiceSpec, log: string): string {
  const agent: Value = {
    Label: LABEL,
    ProgramArguments: spec.command,
    EnvironmentVariables: spec.environment,
    RunAtLoad: true,
    KeepAlive: { SuccessfulExit: false },
    ThrottleInterval: THROTTLE_S,
    ExitTimeOut: spec.stopLimitS,
    // The default, "Standard", is throttled while people work with other programs.
    ProcessType: 'Interactive',
    Umask: 0o077,
    SoftResourceLimits: { Core: 0 },
    StandardOutPath: log,
    StandardErrorPath: log,
  };
  return `<?xml version="1.0" encoding="UTF-8"?>
<!-- Written by "inferd service install", which writes it anew. -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
${element(agent, '')}
</plist>
`;
}

function element(value: Value, indent: string): string {
  const inner = `${indent}  `;
  if (typeof value === 'string') return `${indent}<string>${xmlText(value)}</string>`;
  if (typeof value === 'number') return `${indent}<integer>${value}</integer>`;
  if (typeof value === 'boolean') return `${indent}<${value}/>`;
  if (isList(value)) return [`${indent}<array>`, ...value.map((item) => element(item, inner)), `${indent}</array>`].join('\n');
  const entries = Object.entries(value).flatMap(([key, item]) => [`${inner}<key>${xmlText(key)}</key>`, element(item, inner)]);
  return [`${indent}<dict>`, ...entries, `${indent}</dict>`].join('\n');
}

// Array.isArray does not narrow readonly arrays out of a union.
const isList = (value: Value): value is readonly Value[] => Array.isArray(value);

function xmlText(text: string): string {
  // XML 1.0 has no way to write these; a carriage return would come back as a line end.
  if (/(?![\t\n])[\p{Cc}\ufffe\uffff]/u.test(text) || !text.isWellFormed())
    throw new StartError(`${JSON.stringify(text)} has characters that a property list cannot hold; change it.`, EXIT.config);
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
