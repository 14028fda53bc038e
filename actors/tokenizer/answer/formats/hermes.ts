/** Hermes and Qwen 2.5 and 3, and others after them: <tool_call>{"name": …, "arguments": {…}}</tool_call>, as often as there are calls. */
import { type CallFormat, callId, jsonCall } from '../call-format.js';
import { MarkedReader } from '../marked-reader.js';
import { marker } from '../marker.js';

const open = marker('<tool_call>');
const close = marker('</tool_call>');

export const hermes: CallFormat = {
  name: 'hermes',
  fits: (template) => template.includes(open.text),
  markers: [open, close],
  read: (names, out) => new MarkedReader({ open, close, list: false, named: null }, names, out),
  newId: callId,
  idLength: null,
  shape: {
    marker: { text: open.text, before: 'each' },
    call: (name, args) => `"${open.text}" tool-space ${jsonCall(name, 'arguments', args)} tool-space "${close.text}"`,
    calls: (call, parallel) => (parallel ? `${call} (tool-space ${call})*` : call),
  },
};
