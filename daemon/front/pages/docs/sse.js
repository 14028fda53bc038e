/** Server-sent events out of the pieces of a body, however they are cut (the HTML standard, "Server-sent events"; only `data` is used). */

/** A parser: `feed` takes a piece of text and returns the `data` of the events that it completes. */
export function eventParser() {
  let rest = '';
  let data = [];
  return {
    feed(text) {
      const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? '';
      const events = [];
      for (const line of lines) {
        if (line === '') {
          if (data.length > 0) events.push(data.join('\n'));
          data = [];
        } else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
      }
      return events;
    },
  };
}

/** What a chunk of OpenAI's adds to the answer that is read: the text of its first choice. */
export function textOf(choices) {
  const first = choices?.find(({ index }) => index === 0);
  return first?.delta?.content ?? first?.text ?? '';
}
