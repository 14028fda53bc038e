/** Profiles of a daemon that is under load. */
import type { ProfileStopped } from '../../../rpc/schemas/profile.js';
import type { TestDaemon } from './daemon.js';

/** Records while `streams` requests of `tokens` tokens run. */
export async function record(at: TestDaemon, streams: number, tokens: number): Promise<ProfileStopped> {
  const socket = await at.open();
  const params = (i: number) => ({ messages: [{ role: 'user', content: `Count to ${i}.` }], max_tokens: tokens, ignore_eos: true });
  const run = (n: number) =>
    Promise.all(Array.from({ length: streams }, (_, i) => socket.call('chat.completions.create', { ...params(i), max_tokens: n })));
  await run(12); // graphs are recorded before the profile begins
  await socket.call('profile.start');
  await run(tokens);
  const stopped = (await socket.call('profile.stop')) as unknown as ProfileStopped;
  await socket.close();
  return stopped;
}
