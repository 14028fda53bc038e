/** How the documents and their page sort methods and routes: by what they are about. */

export interface Group {
  readonly name: string;
  readonly description: string;
  /** The methods that belong here: whole names, or beginnings that end with a dot. */
  readonly methods: readonly string[];
}

/** In the order in which they are shown. */
export const groups = [
  { name: 'Generation', description: 'Answers, texts and embeddings.', methods: ['chat.', 'completions.', 'embeddings.'] },
  { name: 'Anthropic', description: "The same in the shapes of Anthropic's Messages.", methods: [] },
  { name: 'Ollama', description: "The same in Ollama's shapes.", methods: [] },
  { name: 'Tokens', description: 'What the tokenizer makes of a text, and back.', methods: ['tokenize', 'detokenize'] },
  { name: 'Models', description: 'Models and adapters.', methods: ['models.', 'adapters.'] },
  {
    name: 'Requests',
    description: 'Calls that run or wait, and how to steer them.',
    methods: ['requests.', '$/cancelRequest', '$/credit'],
  },
  { name: 'Load', description: 'How busy the engine is, and what it does.', methods: ['stats.', 'profile.', 'kv.'] },
  { name: 'Daemon', description: 'State, versions, documents, and JSON-RPC itself.', methods: [] },
] as const satisfies readonly Group[];

export type GroupName = (typeof groups)[number]['name'];

/** Of a method; what no group names belongs to the daemon. */
export function groupOf(method: string): GroupName {
  const of = (group: Group) => group.methods.some((name) => (name.endsWith('.') ? method.startsWith(name) : method === name));
  return groups.find(of)?.name ?? 'Daemon';
}
