/**
 * Which files of a repository are fetched: what serving needs, or those of one GGUF quantization, or what the user's patterns say. Pure.
 */
import { PullError } from '../error.js';
import { shownName } from './file-names.js';
import { glob } from './glob.js';
import type { RemoteFile } from './metadata.js';

export interface Wanted {
  readonly id: string;
  readonly quant: string | null;
  /** Patterns; none: what serving needs. */
  readonly include: readonly string[];
  readonly exclude: readonly string[];
}

/** Files beside the weights that serving reads: at the top, and those of sentence-transformers. */
const besides = [
  'config*.json',
  'generation_config.json',
  'tokenizer*.json',
  'tokenizer.model',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'vocab.txt',
  'merges.txt',
  'chat_template*',
  'preprocessor_config.json',
  'quantize_config.json',
  'quant_config.json',
  'hf_quant_config.json',
  'modules.json',
  'sentence_bert_config.json',
  'LICENSE*',
].map(glob);

const pooling = /^\d+_[A-Za-z]+\/config\.json$/;
const weights = glob('*.safetensors');
const weightIndex = glob('*.safetensors.index.json');
const pickle = /\.(bin|pt|pth|ckpt|pkl|h5|msgpack|onnx)$/;
/** One part of several of a GGUF file. */
const ggufPart = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i;

/** @throws PullError when nothing of use is left, with what the repository has instead */
export function selectFiles(files: readonly RemoteFile[], wanted: Wanted): readonly RemoteFile[] {
  const include = wanted.include.map(glob);
  const exclude = wanted.exclude.map(glob);
  const kept = files.filter(({ path }) => !exclude.some((takes) => takes(path)));
  if (wanted.quant !== null)
    return [...ofQuant(kept, wanted.id, wanted.quant), ...(include.length === 0 ? [] : matching(kept, include))].filter(once());
  const chosen = include.length === 0 ? forServing(kept) : matching(kept, include);
  if (chosen.length === 0 && (include.length > 0 || exclude.length > 0))
    throw new PullError('not_found', `No file of ${wanted.id} fits --include and --exclude; leave them away, or look at its list of files`);
  if (include.length === 0 && !chosen.some(({ path }) => weights(path))) throw nothingToServe(files, wanted.id);
  return chosen;
}

const matching = (files: readonly RemoteFile[], include: readonly ((name: string) => boolean)[]): readonly RemoteFile[] =>
  files.filter(({ path }) => include.some((takes) => takes(path)));

function once(): (file: RemoteFile) => boolean {
  const seen = new Set<string>();
  return ({ path }) => !seen.has(path) && seen.add(path).size > 0;
}

function forServing(files: readonly RemoteFile[]): readonly RemoteFile[] {
  const top = files.filter(({ path }) => !path.includes('/'));
  const held = top.filter(({ path }) => weights(path) || weightIndex(path));
  // Some authors keep the same weights in their own layout beside Hugging Face's; one of them is enough.
  const standard = held.filter(({ path }) => path.startsWith('model'));
  const extra = files.filter(({ path }) =>
    path.includes('/') ? pooling.test(path) : besides.some((takes) => takes(path)) && !weightIndex(path),
  );
  return [...extra, ...(standard.some(({ path }) => weights(path)) ? standard : held)];
}

/** The one file of a quantization, or all parts of it. */
function ofQuant(files: readonly RemoteFile[], id: string, quant: string): readonly RemoteFile[] {
  const models = files.filter(({ path }) => /\.gguf$/i.test(path) && !/(^|[./-])(mmproj|imatrix)/i.test(path));
  const named = models.filter(({ path }) => hasQuant(path, quant));
  const groups = new Map<string, RemoteFile[]>();
  for (const file of named) {
    const stem = ggufPart.exec(file.path)?.[1] ?? file.path;
    groups.set(stem, [...(groups.get(stem) ?? []), file]);
  }
  const [first, second] = [...groups.values()];
  if (first === undefined) {
    const has = quantsOf(models);
    throw new PullError(
      'not_found',
      has.length === 0 ? `${id} has no GGUF files; leave :${quant} away` : `${id} has no GGUF file of ${quant}; it has ${has.join(', ')}`,
    );
  }
  if (second !== undefined)
    throw new PullError(
      'usage',
      `${id} has several GGUF files of ${quant}, such as ${shownName(first[0]?.path ?? '')} and ${shownName(second[0]?.path ?? '')}; choose with --include`,
    );
  const parts = Number(ggufPart.exec(first[0]?.path ?? '')?.[3] ?? 1);
  if (first.length !== parts)
    throw new PullError('bad_data', `${id} has ${first.length} of the ${parts} parts of its GGUF file of ${quant}; choose another one`);
  return first;
}

/** Is the quantization a whole word of the path? "Q4_K" is not one of "x-Q4_K_M.gguf". */
function hasQuant(path: string, quant: string): boolean {
  const words = path.toLowerCase().split(/[-./]/);
  const wanted = quant.toLowerCase().split(/[-./]/);
  return words.some((_, i) => wanted.every((word, k) => words[i + k] === word));
}

function quantsOf(models: readonly RemoteFile[]): readonly string[] {
  const found = models.flatMap(
    ({ path }) => /(?:^|[-./])((?:I?Q\d\w*|BF16|F16|F32|MXFP4\w*|TQ\d\w*))(?=[-./])/i.exec(path)?.[1]?.toUpperCase() ?? [],
  );
  return [...new Set(found)].sort().slice(0, 40);
}

function nothingToServe(files: readonly RemoteFile[], id: string): PullError {
  const models = files.filter(({ path }) => /\.gguf$/i.test(path));
  const quants = quantsOf(models);
  if (quants[0] !== undefined)
    return new PullError('usage', `${id} has GGUF files; say which quantization, as in ${id}:${quants[0]}; it has ${quants.join(', ')}`);
  if (models.length > 0) return new PullError('usage', `${id} has GGUF files whose names tell no quantization; choose one with --include`);
  if (files.some(({ path }) => pickle.test(path)))
    return new PullError(
      'bad_data',
      `${id} has its weights only in formats that inferd does not read (such as *.bin, *.pt or *.onnx); choose a version of the model with *.safetensors or *.gguf files`,
    );
  return new PullError('bad_data', `${id} has no weights (*.safetensors or *.gguf), so there is nothing to serve; choose another model`);
}
