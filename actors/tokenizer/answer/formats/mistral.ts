/**
 * Mistral. Older models write one marker and a JSON list of calls, those since Mistral Small 3.1 a marker before each call, then the
 * name and its arguments: [TOOL_CALLS] [{"name": …, "arguments": {…}}, …] or [TOOL_CALLS]name[ARGS]{…}, with [CALL_ID]id between in some.
 * Both are read in either.
 */
import { type CallFormat, jsonCall, SHORT_ID, shortCallId } from '../call-format.js';
import type { MakeCallReader } from '../call-reader.js';
import { MarkedReader } from '../marked-reader.js';
import { marker } from '../marker.js';

const open = marker('[TOOL_CALLS]');
const id = marker('[CALL_ID]');
const args = marker('[ARGS]');

const read: MakeCallReader = (names, out) =>
  new MarkedReader({ open, close: null, list: true, named: { id, arguments: args } }, names, out);

export const mistral: CallFormat = {
  name: 'mistral',
  fits: (template) => template.includes(open.text) && template.includes(args.text),
  markers: [open, id, args],
  read,
  newId: shortCallId,
  idLength: SHORT_ID,
  shape: {
    marker: { text: open.text, before: 'each' },
    call: (name, rule) => `"${open.text}" "${name}" ("${id.text}" [A-Za-z0-9]{9})? "${args.text}" ${rule}`,
    calls: (call, parallel) => (parallel ? `${call}+` : call),
  },
};

export const mistralList: CallFormat = {
  name: 'mistral_list',
  fits: (template) => template.includes(open.text),
  markers: [open, id, args],
  read,
  newId: shortCallId,
  idLength: SHORT_ID,
  shape: {
    marker: { text: open.text, before: 'all' },
    call: (name, rule) => jsonCall(name, 'arguments', rule),
    calls: (call, parallel) => `"${open.text}" tool-space "[" ${parallel ? `${call} ("," tool-space ${call})*` : call} "]"`,
  },
};
