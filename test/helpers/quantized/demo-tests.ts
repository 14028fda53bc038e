/**
 * Declares the tests of the demo model in every quantized format on a backend: what is written here is what another program writes, every
 * answer that has one right form is that one, and the distributions are as close to those of the model as it is as rounding its weights to
 * the nearest leaves them.
 */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { EngineOptions } from '../../../native/index.js';
import { ggufModelConfig } from '../native/gguf.js';
import { demoModel } from '../native/native-engine.js';
import { tempFolder } from '../temp-folder.js';
import { type DemoFormat, loadedFormats, storedFormats, sumOfWeights } from './demo-formats.js';
import { type Answers, demoAnswers, demoLogits, demoLoss, openDemo } from './demo-loss.js';
import { writeDequantized } from './dequantized.js';

/** A backend, and how distributions are computed there. */
export interface DemoBackend {
  readonly name: EngineOptions['backend'];
  readonly options: Partial<EngineOptions>;
  /** Of formats of eight bits in integers. */
  readonly eightBits: Partial<EngineOptions>;
  /** int8 that is made while loading is judged by the float32 model of its weights. */
  readonly dequantizes: boolean;
  /** Tokens of a step. */
  readonly rows?: number;
}

const answersInAll = 144;
/** What has lost less than this share of what it may is not in its format. */
const leastShare = 0.25;

export function testDemoFormats(backend: DemoBackend): void {
  let prompts: Answers['prompts'] = [];
  let plain: ReturnType<typeof demoLogits> = [];
  before(async () => {
    const answers = await demoAnswers([]);
    assert.deepEqual(answers.wrong, []);
    prompts = answers.prompts;
    plain = demoLogits(prompts);
  });
  for (const format of [...storedFormats, ...loadedFormats]) {
    describe(`the demo model as ${format.name}`, () => {
      let path = demoModel();
      before(() => {
        if (format.write !== undefined) path = format.write(tempFolder());
      });

      if (format.sum !== undefined)
        test('is written as an independent program writes it, bit for bit', () => assert.equal(sumOfWeights(path), format.sum));

      test(`answers ${answersInAll} of ${answersInAll} as the model does`, async () => {
        const sets = [`inference.device=${backend.name}`, `inference.model_name=${path}`];
        const answers = await demoAnswers([...sets, `inference.quantization=${format.quantization ?? 'none'}`]);
        assert.deepEqual(answers.wrong, []);
        assert.equal(answers.asked, answersInAll);
        assert.deepEqual(answers.prompts, prompts);
      });

      test(`is not the model, but within ${format.most.toExponential(2)} nats of it`, (t) => {
        const engine = openDemo(...judged(backend, format, path));
        const { kl, sameTop, sameTopOfExact } = demoLoss(engine, prompts, plain, backend.rows);
        engine.close();
        t.diagnostic(`KL ${kl.toExponential(3)}, ${(100 * sameTop).toFixed(2)} % of the likeliest tokens`);
        assert.ok(kl <= format.most, `KL ${kl}`);
        assert.ok(kl >= leastShare * format.most, `KL ${kl}: too close to be quantized`);
        assert.equal(sameTopOfExact, 1, 'all tokens of an answer with one right form are the likeliest ones');
      });
    });
  }
}

/** The model whose distributions are judged, and the options of its engine. */
function judged(backend: DemoBackend, format: DemoFormat, path: string): [string, Partial<EngineOptions>] {
  const { quantization, eightBits = false } = format;
  if (quantization === 'int8' && backend.dequantizes) {
    const folder = tempFolder();
    writeDequantized(path, folder, quantization);
    return [folder, { ...backend.options, ...backend.eightBits }];
  }
  const modelConfig = path.endsWith('.gguf') ? { modelConfig: ggufModelConfig(path) } : {};
  const precise = eightBits ? backend.eightBits : {};
  return [path, { backend: backend.name, quantization: quantization ?? 'none', ...backend.options, ...precise, ...modelConfig }];
}
