/** Requests for tests that need some long answers which differ: a seeded story of a certain length for each number. */

export function story(i: number, maxTokens: number) {
  return {
    messages: [{ role: 'user', content: `Tell me a story about ${i} foxes.` }],
    seed: 100 + i,
    temperature: 1,
    ignore_eos: true,
    max_tokens: maxTokens,
    return_token_ids: true,
  };
}
