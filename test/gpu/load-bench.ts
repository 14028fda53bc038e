/**
 * How fast a checkpoint reaches the GPU: writes one of the Llama-3-8B shape with `layers` layers (8: 5.6 GB) into a temporary folder,
 * loads it twice from the page cache, and prints GB/s beside those of one thread that reads the file into memory.
 *
 *   node dist/test/gpu/load-bench.js [layers]
 */
import { closeSync, mkdtempSync, openSync, readFileSync, readSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadAddon } from '../../native/index.js';
import { engineOptions, fixture } from '../helpers/native/native-engine.js';

const layers = Number(process.argv[2] ?? 8);
const folder = mkdtempSync(join(tmpdir(), 'inferd-load-'));
const path = join(folder, 'model.safetensors');

function writeCheckpoint(): void {
  const config = JSON.parse(readFileSync(join(fixture('shapes', 'llama-3-8b'), 'config.json'), 'utf8')) as Record<string, number>;
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, num_hidden_layers: layers }));
  const number = (key: string): number => config[key] ?? Number.NaN;
  const [hidden, middle, vocab] = [number('hidden_size'), number('intermediate_size'), number('vocab_size')];
  const kv = (hidden / number('num_attention_heads')) * number('num_key_value_heads');
  const shapes: [string, number[]][] = [['model.embed_tokens.weight', [vocab, hidden]]];
  for (let i = 0; i < layers; i++) {
    const at = `model.layers.${i}.`;
    for (const norm of ['input_layernorm', 'post_attention_layernorm']) shapes.push([`${at}${norm}.weight`, [hidden]]);
    for (const [name, rows, cols] of [
      ['self_attn.q_proj', hidden, hidden],
      ['self_attn.k_proj', kv, hidden],
      ['self_attn.v_proj', kv, hidden],
      ['self_attn.o_proj', hidden, hidden],
      ['mlp.gate_proj', middle, hidden],
      ['mlp.up_proj', middle, hidden],
      ['mlp.down_proj', hidden, middle],
    ] as const)
      shapes.push([`${at}${name}.weight`, [rows, cols]]);
  }
  shapes.push(['model.norm.weight', [hidden]], ['lm_head.weight', [vocab, hidden]]);
  const header: Record<string, unknown> = {};
  let bytes = 0;
  for (const [name, shape] of shapes) {
    const size = 2 * shape.reduce((a, b) => a * b, 1);
    header[name] = { dtype: 'BF16', shape, data_offsets: [bytes, bytes + size] };
    bytes += size;
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const file = openSync(path, 'w');
  writeSync(file, length);
  writeSync(file, text);
  const piece = Buffer.alloc(64 << 20, 0x3c);
  for (let left = bytes; left > 0; left -= piece.length) writeSync(file, piece, 0, Math.min(piece.length, left));
  closeSync(file);
}

const seconds = (what: () => void): number => {
  const started = performance.now();
  what();
  return (performance.now() - started) / 1000;
};

function readAll(): void {
  const file = openSync(path, 'r');
  const piece = Buffer.alloc(16 << 20);
  while (readSync(file, piece) > 0);
  closeSync(file);
}

function load(): void {
  const options = { backend: 'cuda', kvDtype: 'auto', maxSlots: 1, maxBatchTokens: 16, maxModelLen: 128, graphSizes: [] } as const;
  const engine = loadAddon().createEngine(engineOptions(folder, options));
  while (!engine.load(256 << 20).done);
  engine.close();
}

try {
  writeCheckpoint();
  const gigabytes = statSync(path).size / 1e9;
  for (const [name, what] of [
    ['one thread reads', readAll],
    ['load, first', load],
    ['load, again', load],
  ] as const) {
    const s = seconds(what);
    console.log(`${name.padEnd(18)} ${gigabytes.toFixed(2)} GB in ${s.toFixed(2)} s = ${(gigabytes / s).toFixed(1)} GB/s`);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
