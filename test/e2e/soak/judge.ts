/** Decides whether the end of one request was one that the protocol allows, given what its client did to it. */
import type { Answer, Reply } from '../../helpers/wire/rpc-socket.js';
import type { Outcome } from './connection.js';
import type { Figures } from './figures.js';
import { stoodStill } from './pulse.js';
import type { Life } from './target.js';

/** What the client did that makes other ends right. */
export interface Deeds {
  /** Name of the way in which the client asked. */
  readonly way: string;
  readonly want: string;
  readonly streamed: boolean;
  /** Asked for text beyond the end of the list. */
  readonly goesOn?: boolean;
  readonly cancelled?: boolean;
  /** Left the daemon without credit: the request must end with -32008. */
  readonly starved?: boolean;
  /** Did not read: the request may end with -32008, and the connection may be dropped. */
  readonly stalled?: boolean;
  readonly disconnected?: boolean;
}

const code = { overloaded: -32005, slow: -32008, shuttingDown: -32009, loading: -32003, engine: -32012, cancelled: -32800 } as const;
/** A connection may be seen to break before the end of its daemon is. */
const END_NOTICE_MS = 5000;

export async function judge(outcome: Outcome, deeds: Deeds, life: Life, figures: Figures): Promise<void> {
  const { reply } = outcome;
  for (const text of outcome.texts) checkText(text, deeds, false, figures);
  if (reply === null) {
    if (deeds.disconnected || deeds.stalled) figures.count('ended by the client leaving');
    else if (await life.endsWithin(END_NOTICE_MS)) figures.count('ended by the daemon dying');
    else if (life.missedPongs > 0 && stoodStill()) figures.count('ended by the soak standing still');
    else figures.violation(`a connection closed without a reason: ${outcome.closed} (${deeds.way})`);
  } else if (reply.error === undefined) judgeResult(reply.result ?? {}, outcome, deeds, figures);
  else await judgeError(reply.error, outcome, deeds, life, figures);
}

function judgeResult(result: Answer, outcome: Outcome, deeds: Deeds, figures: Figures): void {
  figures.count('answered');
  if (deeds.starved) figures.violation('a stream without credit was answered');
  if (deeds.streamed && outcome.texts.length === 0) figures.violation('a stream was answered without a delta');
  const texts = deeds.streamed ? outcome.texts : (result.choices ?? []).map((choice) => choice.message?.content ?? '');
  for (const text of texts) checkText(text, deeds, true, figures);
  for (const choice of result.choices ?? []) {
    const finish = deeds.goesOn ? 'length' : 'stop';
    if (choice.finish_reason !== finish) figures.violation(`an answer finished with ${choice.finish_reason}, not ${finish}`);
  }
}

async function judgeError(error: NonNullable<Reply['error']>, outcome: Outcome, deeds: Deeds, life: Life, figures: Figures): Promise<void> {
  figures.count(`ended with ${error.code}`);
  const allowed: number[] = [code.engine, code.shuttingDown, code.loading, code.overloaded];
  if (deeds.cancelled) allowed.push(code.cancelled);
  if (deeds.starved || deeds.stalled || stoodStill()) allowed.push(code.slow);
  if (!allowed.includes(error.code)) figures.violation(`an error that nobody caused: ${error.code} ${error.message}`);
  // An engine that restarts can be asked again; one that gave up cannot, and takes its daemon with it.
  else if (error.code === code.engine && error.data?.['retriable'] !== true && !(await life.endsWithin(END_NOTICE_MS))) {
    figures.violation(`a failure of the engine that cannot be retried, in a daemon that goes on: ${error.message}`);
  } else if (error.code === code.shuttingDown && !(await life.endsWithin(END_NOTICE_MS))) {
    figures.violation('a request was refused for a shutdown that did not come');
  }
  const lastSeq = error.data?.['last_seq'];
  if (lastSeq !== undefined && lastSeq !== outcome.lastSeq) {
    figures.violation(`an error says last_seq ${lastSeq}, and the last event was ${outcome.lastSeq}`);
  }
}

function checkText(text: string, { want, goesOn }: Deeds, whole: boolean, figures: Figures): void {
  const right = whole ? (goesOn ? text.startsWith(want) : text === want) : want.startsWith(text) || (goesOn && text.startsWith(want));
  if (!right) figures.violation(`a wrong ${whole ? 'answer' : 'beginning'}: wanted "${want}", got "${text.slice(0, 200)}"`);
}
