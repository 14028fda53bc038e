/** The board: what the machine does now. It asks only while it is shown. */
import { byId, el } from '../../shared/dom.js';
import { bytes, count, duration, rate, sentence } from '../format.js';
import { histogramView, quantile } from './histogram.js';
import { kvMapView } from './kv-map.js';
import { memoryView } from './memory.js';
import { stepsChart } from './steps-chart.js';
import { tile } from './tiles.js';

const UPDATE_MS = 500;
/** Without an update for this long, the model that is shown may have been unloaded. */
const SILENT_MS = 3000;
/** Over how many updates rates are taken. */
const RATE_UPDATES = 5;

export function boardView(rpc) {
  const tiles = Object.fromEntries(['Running', 'Waiting', 'tokens/s', 'KV', 'TTFT', 'step', 'memory'].map((name) => [name, tile(name)]));
  const firstTokens = histogramView('Time to first token', 1000);
  const steps = histogramView('Step time', 1000);
  const chart = stepsChart();
  const map = kvMapView();
  const memory = memoryView();
  const which = el('select', { 'aria-label': 'Model shown' });
  const says = el('p', { class: 'error', role: 'status' });
  byId('board').append(
    el(
      'div',
      { class: 'board-in' },
      el('div', { class: 'board-head' }, el('h1', {}, 'Board'), which, says),
      el(
        'div',
        { class: 'tiles' },
        Object.values(tiles).map(({ node }) => node),
      ),
      chart.node,
      firstTokens.node,
      steps.node,
      map.node,
      memory.node,
    ),
  );
  let subscription = null;
  let shown = false;
  let asking = false;
  let updatedMs = 0;
  let watch = 0;
  /** Totals of the last updates. */
  let samples = [];
  which.hidden = true;

  function update({ requests, kv, tokens, step, memory: used, detail }) {
    updatedMs = performance.now();
    says.textContent = '';
    samples.push({ atMs: performance.now(), generated: tokens.generated_total, prompt: tokens.prompt_total });
    if (samples.length > RATE_UPDATES) samples.shift();
    const [oldest, newest] = [samples[0], samples.at(-1)];
    const seconds = (newest.atMs - oldest.atMs) / 1000;
    const perSecond = (key) => (seconds > 0 ? Math.max(0, newest[key] - oldest[key]) / seconds : 0);
    tiles.Running.set(count(requests.running), `${count(requests.finished_total)} finished`);
    tiles.Waiting.set(
      count(requests.waiting),
      requests.swapped > 0 ? `${count(requests.swapped)} swapped` : `${count(requests.preempted_total)} preempted`,
    );
    tiles['tokens/s'].set(rate(perSecond('generated')), `prompts ${rate(perSecond('prompt'))}/s`);
    tiles.KV.set(
      `${Math.round((100 * kv.used_blocks) / Math.max(1, kv.total_blocks))} %`,
      `${count(kv.used_blocks)} of ${count(kv.total_blocks)} blocks`,
    );
    tiles.step.set(step.count === 0 ? '–' : duration(step.p50_ms), step.count === 0 ? '' : `99 % within ${duration(step.p99_ms)}`);
    tiles.memory.set(bytes(used.rss_bytes), 'of the process');
    if (detail === undefined) return;
    const first = detail.first_token_seconds;
    const median = first === null ? null : quantile(first, 0.5);
    tiles.TTFT.set(median === null ? '–' : duration(median * 1000), median === null ? '' : 'median');
    if (first !== null) firstTokens.show(first);
    steps.show(detail.step_seconds);
    chart.show(detail.steps);
    memory.show(detail.models, used);
    void drawMap();
  }

  /** At most one question at a time, and none while the page is out of sight. */
  async function drawMap() {
    if (asking || document.hidden) return;
    asking = true;
    try {
      map.show(await rpc.call('kv.map', { cells: map.maxCells, ...chosen() }));
    } catch {
      // The engine restarts, or the connection is lost: the next update tries again.
    } finally {
      asking = false;
    }
  }

  const chosen = () => (which.value === '' ? {} : { model: which.value });

  /** Goes on with another model where the one that is shown is gone. */
  async function lookWhenSilent() {
    if (document.hidden || performance.now() - updatedMs < SILENT_MS) return;
    const listed = await rpc.call('models.list').catch(() => null);
    if (listed !== null && shown) setModels(listed.data);
  }

  function setModels(list) {
    const loaded = list.filter(({ state }) => state !== 'unloaded' && state !== 'failed' && state !== 'stopped');
    const old = which.value;
    which.replaceChildren(...loaded.map(({ id }) => el('option', { value: id }, id)));
    if (loaded.some(({ id }) => id === old)) which.value = old;
    which.hidden = loaded.length < 2;
    if (!shown) return;
    if (loaded.length === 0) says.textContent = 'No model is loaded.';
    else if (which.value !== old) void stop().then(start);
  }

  async function start() {
    shown = true;
    clearInterval(watch);
    watch = setInterval(lookWhenSilent, SILENT_MS);
    updatedMs = performance.now();
    if (subscription !== null) return;
    says.textContent = '';
    samples = [];
    try {
      subscription = await rpc.call('stats.subscribe', { interval_ms: UPDATE_MS, detail: true, ...chosen() });
      if (!shown) await stop();
    } catch (error) {
      if (error.code !== undefined) says.textContent = sentence(error); // a lost connection is told at the top
    }
  }

  async function stop() {
    shown = false;
    clearInterval(watch);
    const old = subscription;
    subscription = null;
    if (old !== null) await rpc.call('stats.unsubscribe', { subscription: old }).catch(() => {});
  }

  rpc.on('stats.update', (params) => {
    if (params.subscription === subscription) update(params);
  });
  which.addEventListener('change', () => void stop().then(start));
  const redraw = () => {
    if (!shown) return;
    chart.draw();
    map.draw();
  };
  document.addEventListener('colours', redraw);
  window.addEventListener('resize', redraw);

  return {
    show: () => void start(),
    hide: () => void stop(),
    /** A new connection: the subscription went with the old one. */
    connected() {
      subscription = null;
      if (shown) void start();
    },
    setModels,
  };
}
