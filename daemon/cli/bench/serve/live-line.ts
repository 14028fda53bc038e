/** Shows how far the load is: one line of stderr on a terminal, nothing elsewhere; leaves no trace behind. */
import { barBlocks } from '../../progress.js';
import type { Io } from '../../verb.js';
import type { LoadCounts } from './load.js';

const redrawMs = 200;
const barWidth = 20;

/** At most `columns` wide. `chunksPerS`: since the line before. */
export function liveLine(counts: LoadCounts, total: number, chunksPerS: number, { full, empty }: ReturnType<typeof barBlocks>): string {
  const { sent, done, failed, chunks } = counts;
  const ended = done + failed;
  const filled = Math.round((barWidth * ended) / Math.max(1, total));
  const bar = `${full.repeat(filled)}${empty.repeat(barWidth - filled)}`;
  const trouble = failed > 0 ? `, ${failed} failed` : '';
  return `${bar} ${ended} of ${total}${trouble}, ${sent - ended} in flight, ${chunks} chunks, ${Math.round(chunksPerS)}/s`;
}

/** Starts to draw; the function it returns ends that. */
export function drawLive({ stderr, env }: Io, counts: LoadCounts, total: number): () => void {
  if (stderr.isTTY !== true || env['TERM'] === 'dumb') return () => undefined;
  const blocks = barBlocks(env);
  let before = { chunks: counts.chunks, ms: performance.now() };
  const draw = (): void => {
    const now = { chunks: counts.chunks, ms: performance.now() };
    const rate = ((now.chunks - before.chunks) / Math.max(1, now.ms - before.ms)) * 1000;
    before = now;
    stderr.write(`\r\u001b[K${liveLine(counts, total, rate, blocks).slice(0, Math.max(0, (stderr.columns || 80) - 1))}`);
  };
  const timer = setInterval(draw, redrawMs);
  draw();
  return () => {
    clearInterval(timer);
    stderr.write('\r\u001b[K');
  };
}
