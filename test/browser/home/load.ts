/** Work for a daemon while a page looks on: some answers at a time, one after the other, until it is stopped. */
import type { TestDaemon } from '../../helpers/daemon/daemon.js';

const words = 'fox hare bear owl river hill snow night road song tale moon'.split(' ');

/** `atOnce` answers at a time. Resolves with what stops it; that resolves when all have ended. */
export async function startLoad(at: TestDaemon, atOnce: number, maxTokens = 120): Promise<() => Promise<void>> {
  const socket = await at.open();
  let stopped = false;
  let asked = 0;
  const one = async (): Promise<void> => {
    while (!stopped) {
      const n = asked++;
      const prompt = Array.from({ length: 40 + ((n * 37) % 300) }, (_, i) => words[(n * 7 + i * 3) % words.length]).join(' ');
      await socket.call('completions.create', { prompt: `${n} ${prompt}`, max_tokens: maxTokens, ignore_eos: true, temperature: 1 });
    }
  };
  const running = Promise.all(Array.from({ length: atOnce }, one));
  return async () => {
    stopped = true;
    await running;
    await socket.close();
  };
}
