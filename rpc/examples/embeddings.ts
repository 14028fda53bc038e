/** Calls of embeddings.create. As base64 a vector is of the machine's own last bits, so none is shown. */
import type { Example } from '../method.js';

const usage = (tokens: number) => ({ prompt_tokens: tokens, total_tokens: tokens, prompt_tokens_details: { cached_tokens: 0 } });

export const embeddingExamples: readonly Example[] = [
  {
    name: 'Two texts, in four dimensions',
    params: { model: 'demo', input: ['What is 123 + 456?', 'Who are you?'], dimensions: 4 },
    result: {
      object: 'list',
      data: [
        { object: 'embedding', index: 0, embedding: [-0.3577345311641693, 0.10859374701976776, 0.7388705611228943, 0.5606279373168945] },
        { object: 'embedding', index: 1, embedding: [-0.048680827021598816, 0.09012459218502045, 0.9000926613807678, -0.4234866499900818] },
      ],
      model: 'demo',
      usage: usage(18),
    },
  },
];
