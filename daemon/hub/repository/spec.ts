/** What a user asks for: `HF_ID[@REV][:QUANT]`. Pure. */
import { modelIdPattern } from '../../../config/models/hub-cache.js';
import { PullError } from '../error.js';
import { hostileName, shownName } from './file-names.js';

export interface PullSpec {
  /** "org/name" */
  readonly id: string;
  /** Branch, tag or commit; "main" when not said. */
  readonly revision: string;
  /** The quantization of a GGUF file, such as "Q4_K_M". */
  readonly quant: string | null;
}

const revisionPattern = /^[A-Za-z0-9][\w./-]{0,127}$/;
const quantPattern = /^[A-Za-z0-9][\w.-]{0,63}$/;

/** Reads the form of the command line. @throws PullError usage */
export function parseSpec(text: string): PullSpec {
  const bare = text.replace(/^(https?:\/\/)?(huggingface\.co|hf\.co)\//, '');
  const [, id = '', revision, quant] = /^([^@:]*)(?:@([^:]*))?(?::(.*))?$/.exec(bare) ?? [];
  return checkSpec({ id, revision: revision ?? 'main', quant: quant ?? null });
}

/** The same spec, when every part may become a path and an address. @throws PullError usage */
export function checkSpec(spec: PullSpec): PullSpec {
  const { id, revision, quant } = spec;
  if (!modelIdPattern.test(id) || /\.\.|--/.test(id) || /\.git$/.test(id))
    throw new PullError('usage', `${shownName(id)} is no Hugging Face id; name a model as ORG/NAME, ORG/NAME@REVISION or ORG/NAME:QUANT`);
  if (!revisionPattern.test(revision) || hostileName(revision) !== null || /\.lock(\/|$)|(^|\/)\./.test(revision))
    throw new PullError('usage', `${shownName(revision)} is no revision; name a branch, a tag or a commit, as in ${id}@main`);
  if (quant !== null && !quantPattern.test(quant))
    throw new PullError('usage', `${shownName(quant)} is no quantization; name one as in ${id}:Q4_K_M`);
  return spec;
}
