/**
 * The daemon that the tests of this folder attack: the embedded model, whose chat template does not end for one message, and limits that
 * an attack can reach.
 */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../native/index.js';
import { tempFolder } from '../../helpers/temp-folder.js';
import { AttackedDaemon } from './target.js';

export const MAX_CONNECTIONS = 12;
/** The message for which the chat template does not end. */
export const bomb = 'Take the slow path.';
/** 130 MB of text, or a loop of hours, unless the template is stopped. */
const bombs = `{%- if messages[0].content == '${bomb}' -%}{%- for i in range(30000) -%}{%- for j in range(30000) -%}{%- set x = i * j -%}
{%- endfor -%}{%- endfor -%}{%- endif -%}`;

/** The embedded model with a chat template that does not end for one certain message. */
function modelWithTemplateBomb(): string {
  const folder = tempFolder();
  cpSync(join(packageRoot(), 'config', 'demo-model'), folder, { recursive: true });
  const file = join(folder, 'tokenizer_config.json');
  const settings = JSON.parse(readFileSync(file, 'utf8')) as { chat_template: string };
  writeFileSync(file, JSON.stringify({ ...settings, chat_template: bombs + settings.chat_template }));
  return folder;
}

export function startAttacked(): Promise<AttackedDaemon> {
  return AttackedDaemon.start([
    `inference.model_name=${modelWithTemplateBomb()}`,
    `server.max_connections=${MAX_CONNECTIONS}`,
    'inference.num_tokenizer_workers=2',
    'scheduler.max_model_len=512',
    // Few enough to have been used once before long: the first use of a page costs time, which is not what is looked at here.
    'cache.num_gpu_blocks_override=512',
  ]);
}

export const chat = (content: string, more: object = {}) => ({ messages: [{ role: 'user', content }], max_tokens: 4, ...more });
