/**
 * gpt-oss: an answer is messages in channels, "analysis", "commentary" and "final" (channel-reader.ts). A call is a message to the function,
 * one at a time, which ends the answer.
 */
import { withoutMarker } from '../avoid-marker.js';
import { type CallFormat, callId } from '../call-format.js';
import { ChannelReader } from '../channel-reader.js';
import { marker } from '../marker.js';
import { oneCallEach } from './harmony-messages.js';

const start = marker('<|start|>');
const channel = marker('<|channel|>');
const message = marker('<|message|>');
const constrain = marker('<|constrain|>');
const end = marker('<|end|>');
const answered = marker('<|return|>');
const called = marker('<|call|>');

const form = {
  start,
  channel,
  message,
  ends: [end, answered, called],
  others: [constrain],
  reasoning: 'analysis',
  namespace: 'functions.',
};

const open = (name: string): string => `${channel.text}${name}${message.text}`;
const text = withoutMarker(end.text);

export const harmony: CallFormat = {
  name: 'harmony',
  fits: (template) => template.includes(channel.text) && template.includes(message.text),
  markers: [start, channel, message, constrain, end, answered, called],
  read: (names, out) => new ChannelReader(form, names, out),
  newId: callId,
  idLength: null,
  shape: {
    marker: null,
    call: (name, args) => `"${channel.text}commentary to=functions.${name} ${constrain.text}json${message.text}" ${args}`,
    calls: (call) => call,
  },
  channels: {
    first: `("${open('analysis')}" ${text} "${end.text}${start.text}assistant")? `,
    final: `"${open('final')}" `,
    text,
    ends: [answered, called],
    messages: oneCallEach,
  },
};
