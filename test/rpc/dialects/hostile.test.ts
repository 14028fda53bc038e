/** Bodies that nobody would write: each is answered, and none is our fault. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ask, serve } from './asking.js';

const served = serve({ template: '<tool_call>', script: ['Hi'] });
const faces = served.server
  .faces()
  .filter(({ access, reads, verb, id, about }) => access === 'infer' && reads && verb === 'POST' && id !== about.methods[0]);

/** Words that dialects know, so that wrong values reach the depths of a body. */
const words = fc.constantFrom(
  ...[
    'text',
    'input_text',
    'message',
    'user',
    'assistant',
    'tool',
    'function',
    'function_call',
    'function_call_output',
    'reasoning',
    'json_schema',
  ],
  ...[
    'tool_use',
    'tool_result',
    'thinking',
    'image',
    'auto',
    'any',
    'json',
    'allowed_tools',
    'fake',
    'fake:latest',
    'custom',
    '',
    '__proto__',
  ],
);
const members = fc.constantFrom(
  ...[
    'type',
    'role',
    'content',
    'text',
    'name',
    'call_id',
    'id',
    'arguments',
    'input',
    'output',
    'tool_use_id',
    'thinking',
    'format',
    'schema',
  ],
  ...[
    'function',
    'tools',
    'mode',
    'tool_calls',
    'tool_name',
    'effort',
    'parameters',
    'input_schema',
    'strict',
    'images',
    'summary',
    'num_predict',
  ],
);
const value = fc.letrec((tie) => ({
  any: fc.oneof(
    { depthSize: 'small' },
    words,
    fc.integer({ min: -2, max: 9 }),
    fc.constantFrom(null, true, false, 1e308, 0.5),
    fc.array(tie('any'), { maxLength: 3 }),
    fc.dictionary(members, tie('any'), { maxKeys: 4 }),
  ),
})).any;

test('there are faces to ask', () => assert.ok(faces.length >= 7));

for (const { id, about } of faces) {
  const names = Object.keys(about.params.shape);
  test(`${id}: no body is answered with 500, whatever its members are`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.dictionary(fc.constantFrom(...names), value, { minKeys: 1, maxKeys: 6 }), fc.boolean(), async (body, good) => {
        const sound = good ? { model: 'fake', max_tokens: 4, ...body } : body;
        const { reply } = await ask(served, id, sound);
        assert.ok(reply.status === 200 || (reply.status >= 400 && reply.status < 500), `${reply.status} ${reply.body}`);
      }),
      { numRuns: 250 },
    );
  });
}
