/**
 * Python lists of calls: [get_weather(city="Paris"), now()], as Llama 3.2, Llama 4 and others write them where their template asks for
 * it. Nothing marks them, so the whole answer must be such a list. Arguments are Python's literals and not JSON: a schema cannot be forced.
 */
import { type CallFormat, callId } from '../call-format.js';
import { HeldReader } from '../held-reader.js';
import { marker } from '../marker.js';
import { PythonCalls } from '../python-calls.js';

const open = marker('<|python_tag|>');

export const pythonic: CallFormat = {
  name: 'pythonic',
  fits: (template) => /\[\w+\(\w+=/.test(template),
  markers: [open],
  read: (names, out) => new HeldReader({ open, calls: (offered) => new PythonCalls(offered) }, names, out),
  newId: callId,
  idLength: null,
  shape: null,
};
