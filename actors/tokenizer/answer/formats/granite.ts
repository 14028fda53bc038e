/** Granite 3: <|tool_call|> and a JSON list of calls. */
import { type CallFormat, callId, jsonCall } from '../call-format.js';
import { MarkedReader } from '../marked-reader.js';
import { marker } from '../marker.js';

const open = marker('<|tool_call|>');

export const granite: CallFormat = {
  name: 'granite',
  fits: (template) => template.includes(open.text),
  markers: [open],
  read: (names, out) => new MarkedReader({ open, close: null, list: true, named: null }, names, out),
  newId: callId,
  idLength: null,
  shape: {
    marker: { text: open.text, before: 'all' },
    call: (name, args) => jsonCall(name, 'arguments', args),
    calls: (call, parallel) => `"${open.text}" tool-space "[" ${parallel ? `${call} ("," tool-space ${call})*` : call} "]"`,
  },
};
