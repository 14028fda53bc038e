/** The thread of grammar-texts.ts: writes the grammars that it is asked for, one after the other, each within the limits. */
import { parentPort, workerData } from 'node:worker_threads';
import { ConstraintError } from '../../grammar/index.js';
import { giveWay } from '../../runtime/cpu-time.js';
import { formatsOf } from '../answer/formats/table.js';
import { type Asked, answerGrammar } from './answer-grammar.js';
import type { GrammarLimits } from './grammar-limits.js';
import type { ChatPart, GrammarDone, GrammarJob } from './grammar-texts.js';

const limits = workerData as GrammarLimits; // proof: GrammarTexts starts this thread

function written({ asked, chat }: GrammarJob): GrammarDone {
  try {
    return { grammar: answerGrammar({ constraint: asked?.constraint ?? null, chat: chat === null ? null : chatOf(chat) }, limits) };
  } catch (error) {
    return error instanceof ConstraintError ? { refused: error.message, path: error.path } : { failed: true };
  }
}

function chatOf({ tools, template, parsers, opened }: ChatPart): Asked['chat'] {
  return { tools, style: { ...formatsOf(template, parsers), opened } };
}

giveWay();
parentPort?.on('message', (job: GrammarJob) => parentPort?.postMessage(written(job)));
