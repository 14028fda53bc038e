/** A small sentencepiece-like tokenizer (byte fallback, U+2581 for spaces) in the shapes that published models have. */
export interface PiecesOptions {
  /** How spaces are made: normalizers as in Llama 2, or a Metaspace pre-tokenizer. */
  readonly spaces: 'normalizer' | 'metaspace-first' | 'metaspace-always';
  readonly added?: readonly Record<string, unknown>[];
}

const WORDS = [
  'he',
  'll',
  'hell',
  'hello',
  '▁hello',
  '▁he',
  'wo',
  'rld',
  'wor',
  '▁wo',
  'world',
  '▁world',
  'in',
  'IN',
  'ST',
  'INST',
  '▁a',
  '▁in',
];

export function piecesVocabulary(): string[] {
  const bytes = Array.from({ length: 256 }, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
  const letters = [...'▁abcdefghijklmnopqrstuvwxyzINST[]/|.,!?0123456789é'];
  const all = ['<unk>', '<s>', '</s>', ...bytes, ...letters];
  for (const word of WORDS) if (!all.includes(word)) all.push(word);
  return all;
}

export function special(id: number, content: string, flags: Record<string, unknown> = {}): Record<string, unknown> {
  return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...flags };
}

export function piecesTokenizer(options: PiecesOptions): Record<string, unknown> {
  const vocabulary = piecesVocabulary();
  const known = new Set(vocabulary);
  const merges: string[] = [];
  for (const word of vocabulary.slice(3 + 256).filter((w) => [...w].length > 1)) {
    const units = [...word];
    for (let cut = 1; cut < units.length; cut++) {
      const left = units.slice(0, cut).join('');
      const right = units.slice(cut).join('');
      if (known.has(left) && known.has(right)) merges.push(`${left} ${right}`);
    }
  }
  const scheme = options.spaces === 'metaspace-first' ? 'first' : 'always';
  return {
    version: '1.0',
    truncation: { direction: 'Right', max_length: 4, strategy: 'LongestFirst', stride: 0 },
    padding: null,
    added_tokens: [special(0, '<unk>'), special(1, '<s>'), special(2, '</s>'), ...(options.added ?? [])],
    normalizer:
      options.spaces === 'normalizer'
        ? {
            type: 'Sequence',
            normalizers: [
              { type: 'Prepend', prepend: '▁' },
              { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
            ],
          }
        : null,
    pre_tokenizer: options.spaces === 'normalizer' ? null : { type: 'Metaspace', replacement: '▁', prepend_scheme: scheme, split: false },
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: '<unk>',
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      merges,
    },
  };
}
