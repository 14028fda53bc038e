/**
 * Llama 3.1 and later: {"name": …, "parameters": {…}}, several with `; ` between, behind <|python_tag|> or nothing. Because nothing may
 * mark a call, the whole answer must be calls, and is held back until it is over. Also for templates that say nothing of a format: a
 * model that was told of functions mostly answers so.
 */
import { type CallFormat, callId, jsonCall } from '../call-format.js';
import { HeldReader } from '../held-reader.js';
import { JsonSequence } from '../json-sequence.js';
import { marker } from '../marker.js';

const open = marker('<|python_tag|>');

export const llama3Json: CallFormat = {
  name: 'llama3_json',
  fits: () => true,
  markers: [open],
  read: (names, out) => new HeldReader({ open, calls: (offered) => new JsonSequence(offered) }, names, out),
  newId: callId,
  idLength: null,
  shape: {
    marker: null,
    call: (name, args) => jsonCall(name, 'parameters', args),
    calls: (call, parallel) => (parallel ? `${call} (";" tool-space ${call})*` : call),
  },
};
