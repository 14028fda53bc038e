/**
 * What a whole daemon answers under many schemas, at a temperature at which the model says anything: every answer that is complete holds
 * under ajv, and what cannot be enforced is refused. And schemas that are meant to harm, beside an ordinary client.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { Constraint } from '../../../actors/grammar/index.js';
import { packageRoot } from '../../../native/index.js';
import { startTestDaemon, type TestDaemon } from '../../helpers/daemon/daemon.js';
import { hostileConstraints } from '../../helpers/grammar/hostile-constraints.js';
import { randomSchema } from '../../helpers/grammar/random-schema.js';
import { validatorOf } from '../../helpers/grammar/validator.js';

const clients = 24;
let at: TestDaemon;
before(async () => {
  at = await startTestDaemon([`scheduler.max_num_sequences=${clients}`]);
});
after(() => at.close());

interface Outcome {
  readonly status: number;
  readonly text: string;
  readonly finish: string;
}

async function ask(more: object): Promise<Outcome> {
  const messages = [{ role: 'user', content: 'Give me an example.' }];
  const response = await fetch(`${at.http}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages, temperature: 1.3, max_tokens: 2000, ...more }),
  });
  const body = (await response.json()) as {
    choices?: { message: { content: string }; finish_reason: string }[];
    error?: { message: string; type: string; param: string | null; code: string };
  };
  if (response.status === 200) {
    const [choice] = body.choices ?? [];
    return { status: 200, text: choice?.message.content ?? '', finish: choice?.finish_reason ?? '' };
  }
  assert.deepEqual([response.status, body.error?.type], [400, 'invalid_request_error']);
  assert.match(body.error?.code ?? '', /^invalid_(params|request)$/); // the latter for what has too many parts to be looked at
  return { status: response.status, text: body.error?.message ?? '', finish: '' };
}

/** Counts of what became of `schemas`, several at a time. */
async function tally(schemas: readonly unknown[]): Promise<{ whole: number; cut: number; refused: number }> {
  const counts = { whole: 0, cut: 0, refused: 0 };
  const left = schemas.map((schema, seed) => ({ schema, seed }));
  const work = async (): Promise<void> => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      const { schema, seed } = next;
      const response_format = { type: 'json_schema', json_schema: { name: 'example', schema } };
      const { status, text, finish } = await ask({ response_format, seed });
      if (status !== 200) counts.refused++;
      else if (finish === 'length') counts.cut++;
      else {
        assert.equal(finish, 'stop');
        const validate = validatorOf(schema);
        assert.ok(validate(JSON.parse(text)), `${JSON.stringify(schema)}: ${text}`);
        counts.whole++;
      }
    }
  };
  await Promise.all(Array.from({ length: clients }, work));
  return counts;
}

test('ordinary schemas are enforced, random ones too or refused; hardly an ordinary one is refused, and few answers are cut', async (t) => {
  const lines = readFileSync(join(packageRoot(), 'test', 'fixtures', 'schemas', 'ordinary.jsonl'), 'utf8')
    .trim()
    .split('\n');
  const schemas = lines.map((line) => (JSON.parse(line) as { schema: unknown }).schema);
  assert.ok(schemas.length >= 100);
  const ordinary = await tally(schemas);
  const random = await tally(fc.sample(randomSchema, { numRuns: 500, seed: 20 }));
  t.diagnostic(`ordinary ${JSON.stringify(ordinary)}, random ${JSON.stringify(random)}`);
  assert.ok(ordinary.refused <= 0.08 * schemas.length);
  // Some random ones have no value.
  assert.ok(random.refused <= 0.15 * 500);
  assert.ok(ordinary.cut + random.cut <= 0.15 * (schemas.length + 500));
});

function bodyOf(constraint: Constraint): object {
  if (constraint.kind === 'json_schema') return { guided_json: constraint.schema };
  if (constraint.kind === 'regex') return { guided_regex: constraint.pattern };
  if (constraint.kind === 'choice') return { guided_choice: constraint.choices };
  return constraint.kind === 'grammar' ? { guided_grammar: constraint.text } : { response_format: { type: 'json_object' } };
}

test('hostile constraints get one answer each, and another client is served meanwhile', async () => {
  const other = await at.open();
  const story = { prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
  const want = (await other.call('completions.create', story)).choices;
  let done = false;
  const bystander = (async () => {
    let answers = 0;
    for (; !done; answers++) assert.deepEqual((await other.call('completions.create', story)).choices, want);
    return answers;
  })();
  // What is nested 10,000 deep, or has 2^25 ends, cannot be written by JSON.stringify; the door would refuse it by its size or depth.
  const all = Object.entries(hostileConstraints).filter(([name]) => !/^(objects|lists|negations) 10,000|doubling$/.test(name));
  assert.ok(all.length >= 40);
  await Promise.all(
    all.map(async ([, { of, refused }]) => {
      const { status } = await ask({ ...bodyOf(of), max_tokens: 20 });
      if (refused === true) assert.equal(status, 400);
    }),
  );
  done = true;
  assert.ok((await bystander) > 0);
  assert.equal((await at.untilFreed()).kv?.used_blocks, 0);
  await other.close();
});
