/** Asks faces of a server with a scripted engine, whole and streamed, and takes the text of a stream apart. */
import type { StreamFormat, StreamWriter } from '../../../rpc/dialects/dialect.js';
import type { PostReply } from '../../../rpc/server.js';
import type { EndingSinkMaker } from '../../../rpc/sink.js';
import { type Setup, setup } from '../harness.js';

/** What the template shows, and what the engine writes, a token each. */
export interface Model {
  readonly template?: string;
  readonly script: readonly string[];
}

export function serve({ template = '', script }: Model, auto = true): Setup {
  const set = setup({ auto });
  Object.assign(set.engine, { template, promptEnd: '', script: () => script });
  return set;
}

/** A door that keeps the text of a stream. */
export function textDoor() {
  let text = '';
  let writer: StreamWriter | null = null;
  const write = (more: string): void => {
    text += more;
  };
  const sinks = (format: StreamFormat): EndingSinkMaker => ({
    kind: 'http',
    get opened() {
      return writer !== null;
    },
    get begun() {
      return text !== '';
    },
    end: (answer) => write(writer?.end(answer) ?? ''),
    fail: (failure) => write(writer?.fail(failure) ?? ''),
    choose:
      ({ usage }) =>
      (head, _onRoom, counted) => {
        const made = format.open({ head, usage, counted });
        writer = made;
        return {
          full: false,
          credit: Number.POSITIVE_INFINITY,
          numEvents: 0,
          event: (event) => write(made.event(event)),
          watch: () => () => true,
          close() {},
        };
      },
  });
  return { sinks, text: () => text, silence: () => write(writer?.keepAlive() ?? '') };
}

export interface Asked {
  readonly reply: PostReply;
  /** The JSON of the answer; null when it was streamed. */
  readonly body: unknown;
  /** Events of the stream. */
  readonly events: readonly Event[];
}

export type Event = Readonly<Record<string, unknown>> & { readonly type?: string };

export async function ask({ server }: Setup, face: string, body: object): Promise<Asked> {
  const door = textDoor();
  const reply = await server.handleCall(face, { body: Buffer.from(JSON.stringify(body)), sinks: door.sinks });
  return { reply, body: JSON.parse(reply.body ?? 'null') as unknown, events: eventsOf(door.text()) };
}

/** Server-sent events, or lines of JSON. */
export function eventsOf(text: string): readonly Event[] {
  const data = text.startsWith('{') ? linesOf(text) : linesOf(text).flatMap((line) => (line.startsWith('data: ') ? [line.slice(6)] : []));
  return data.filter((one) => one !== '').map((one) => JSON.parse(one) as Event);
}

/** Lines as event streams have them: other separators, such as U+2028, are text. */
const linesOf = (text: string): string[] => text.split('\n');
