/**
 * Chunks of OpenAI's chat and text completions as server-sent events: a chunk of the answer an event, then the usage when it was asked
 * for, then [DONE]. Format: the HTML standard, "Server-sent events".
 */
import { failureBody } from '../../../actors/messages/errors.js';
import { chunkOf } from '../../client/chunk.js';
import type { StreamFormat } from '../dialect.js';

/** A line that clients skip. */
export const COMMENT = ': the answer is being made\n\n';
const DONE = 'data: [DONE]\n\n';

export const chunkEvents: StreamFormat = {
  type: 'text/event-stream',
  open({ head, usage }) {
    const { choices: _choices, usage: _usage, ...repeated } = chunkOf(head, []);
    // What every chunk begins with.
    const begin = `data: ${JSON.stringify(repeated).slice(0, -1)},`;
    return {
      // What OpenAI has no chunk for (a wait, a long prompt) is not told; comments say that the daemon lives.
      event(event) {
        if (event.kind !== 'delta') return '';
        const fields = JSON.stringify(event.fields ?? {}).slice(1, -1);
        const more = `${fields === '' ? '' : `,${fields}`}${usage ? ',"usage":null' : ''}`;
        return `${begin}"choices":${JSON.stringify(event.choices)}${more}}\n\n`;
      },
      keepAlive: () => COMMENT,
      end(answer) {
        const { usage: counted = null } = answer as { readonly usage?: unknown }; // proof: the answer of a method that streams
        return `${usage ? `${begin}"choices":[],"usage":${JSON.stringify(counted)}}\n\n` : ''}${DONE}`;
      },
      fail: (failure) => `data: ${failureBody(failure)}\n\n${DONE}`,
    };
  },
};
