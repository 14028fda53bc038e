/** Which tools a request offers, and what cannot be enforced of them, before a tokenizer hears of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toolOffer } from '../../../rpc/generation/tool-choice.js';
import type { ChatBody } from '../../../rpc/schemas/chat.js';

const asked = (parameters: Record<string, unknown>, more: Partial<ChatBody>, strict = false): ChatBody => ({
  messages: [{ role: 'user', content: 'x' }],
  tools: [{ type: 'function', function: { name: 'f', parameters, strict } }],
  ...more,
});

test('half of a surrogate pair in the schema of calls that are enforced is refused', () => {
  for (const parameters of [{ properties: { a: { const: '\ud800' } } }, { required: ['a\udc00'] }, { properties: { '\ud800': {} } }]) {
    for (const body of [asked(parameters, { tool_choice: 'required' }), asked(parameters, {}, true)])
      assert.throws(() => toolOffer(body), /tools\[0\]\.function\.parameters: holds half of a surrogate pair/);
    assert.equal(toolOffer(asked(parameters, {})).constrains, false);
  }
  assert.ok(toolOffer(asked({ properties: { a: { const: '😀' } } }, { tool_choice: 'required' })).constrains);
});
