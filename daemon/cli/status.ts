/**
 * `inferd status`: is a daemon running, is it well, and how busy it is. Exits with 69 when none is running, or when its engine makes no
 * progress or gave up; a daemon that is still loading its model is well.
 */
import { explain, retryAfterMs } from './failure.js';
import { requireRunning } from './reach.js';
import { statsText } from './stats.js';
import { formatBytes, formatDuration } from './table.js';
import { EXIT, type ExitCode, jsonOption, printJson, type Verb, type VerbInput } from './verb.js';

export const status: Verb = {
  name: 'status',
  summary: 'show health, queue and KV usage of the running daemon',
  options: [jsonOption],
  examples: ['inferd status', 'inferd status --json'],
  run,
};

async function run(input: VerbInput): Promise<ExitCode> {
  const { io } = input;
  const { client, file } = await requireRunning(io);
  try {
    const info = await client.call('daemon.info', {});
    // The scheduler has no counters before the model is loaded.
    const stats = await client.call('stats.get', {}).catch((error: unknown) => {
      if (retryAfterMs(error) === null && info.healthy) throw error;
      return null;
    });
    const well = info.healthy || info.state === 'starting';
    if (input.flag('json')) printJson(io, { running: true, healthy: info.healthy, address: file.address, info, stats });
    else {
      const { model } = info;
      io.stdout.write(`inferd ${info.version} at ${file.address}, pid ${info.pid}, up ${formatDuration(info.uptime_s * 1000)}\n`);
      io.stdout.write(`engine     ${info.state}${well ? '' : ', and it makes no progress; see the log of the daemon'}\n`);
      io.stdout.write(
        `model      ${model.id} (${model.architecture}${model.backend === null ? '' : `, ${model.dtype} on ${model.backend}`})\n`,
      );
      if (stats !== null) io.stdout.write(`memory     ${formatBytes(stats.memory.rss_bytes)} in use\n${statsText(stats)}`);
    }
    return well ? EXIT.ok : EXIT.unavailable;
  } catch (error) {
    throw explain(error);
  } finally {
    await client.close();
  }
}
