/** Which files of a repository are fetched. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { selectFiles } from '../../../../daemon/hub/repository/select.js';

interface Asked {
  readonly quant?: string;
  readonly include?: readonly string[];
  readonly exclude?: readonly string[];
}

const hash = { algorithm: 'sha256', hex: 'a'.repeat(64) } as const;
const select = (paths: readonly string[], { quant, include, exclude }: Asked = {}): readonly string[] =>
  selectFiles(
    paths.map((path) => ({ path, size: 1, hash })),
    { id: 'o/m', quant: quant ?? null, include: include ?? [], exclude: exclude ?? [] },
  )
    .map(({ path }) => path)
    .toSorted();

const usual = ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'];
const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors', 'model.safetensors.index.json'];

describe('what serving needs', () => {
  test('configuration, tokenizer, template and safetensors with their index; nothing else', () => {
    const rest = [
      'README.md',
      '.gitattributes',
      'pytorch_model.bin',
      'onnx/model.onnx',
      'original/consolidated.00.pth',
      'tf_model.h5',
      'x.gguf',
      'train.py',
    ];
    assert.deepEqual(select([...usual, ...shards, ...rest]), [...usual, ...shards].toSorted());
  });

  test("not the same weights in the author's own layout beside them", () => {
    assert.deepEqual(select(['config.json', 'consolidated.safetensors', ...shards]), ['config.json', ...shards].toSorted());
    assert.deepEqual(select(['config.json', 'consolidated.safetensors']), ['config.json', 'consolidated.safetensors']);
  });

  test('the files of sentence-transformers', () => {
    const files = [
      '1_Pooling/config.json',
      'config.json',
      'model.safetensors',
      'modules.json',
      'sentence_bert_config.json',
      'tokenizer.json',
    ];
    assert.deepEqual(select([...files, '2_Dense/pytorch_model.bin', 'openvino/config.json']), files.toSorted());
  });

  test('patterns take other files, and leave some out', () => {
    assert.deepEqual(select([...usual, 'a/b.txt', 'c.txt'], { include: ['*.txt'] }), ['a/b.txt', 'c.txt']);
    assert.deepEqual(select([...usual, 'a/b.txt'], { include: ['a/'] }), ['a/b.txt']);
    assert.deepEqual(select(['config.json', 'model.safetensors', 'tokenizer.json'], { exclude: ['tok*'] }), [
      'config.json',
      'model.safetensors',
    ]);
  });
});

describe('what cannot be served', () => {
  const refused = (paths: readonly string[], message: RegExp, asked: Asked = {}): void =>
    void assert.throws(() => select(paths, asked), message);

  test('formats that run code, or none at all', () => {
    refused(['config.json', 'pytorch_model.bin'], /o\/m has its weights only in formats that inferd does not read .* choose a version/);
    refused(['config.json', 'onnx/model.onnx'], /does not read/);
    refused(['README.md'], /o\/m has no weights .* choose another model/);
  });

  test('GGUF files without a word which', () => {
    refused(['m-Q4_K_M.gguf', 'm-Q8_0.gguf', 'm-IQ2_XS.gguf'], /say which quantization, as in o\/m:IQ2_XS; it has IQ2_XS, Q4_K_M, Q8_0$/);
    refused(['m.gguf'], /choose one with --include/);
  });
});

describe('one GGUF quantization', () => {
  const files = [
    'm-Q4_K_M.gguf',
    'm-Q4_K_S.gguf',
    'm-q8_0.gguf',
    'mmproj-m-Q8_0.gguf',
    'config.json',
    'big/m-BF16-00001-of-00002.gguf',
    'big/m-BF16-00002-of-00002.gguf',
  ];

  test('is the one file that has its name, in whatever case', () => {
    assert.deepEqual(select(files, { quant: 'Q4_K_M' }), ['m-Q4_K_M.gguf']);
    assert.deepEqual(select(files, { quant: 'q8_0' }), ['m-q8_0.gguf']);
    assert.deepEqual(select(['a.Q5_0.gguf', 'b.txt'], { quant: 'Q5_0' }), ['a.Q5_0.gguf']);
    assert.deepEqual(select(['UD-Q2_K_XL/a-00001-of-00001.gguf'], { quant: 'UD-Q2_K_XL' }), ['UD-Q2_K_XL/a-00001-of-00001.gguf']);
  });

  test('or all parts of it', () => {
    assert.deepEqual(select(files, { quant: 'BF16' }), ['big/m-BF16-00001-of-00002.gguf', 'big/m-BF16-00002-of-00002.gguf']);
    assert.throws(() => select(['m-BF16-00002-of-00002.gguf'], { quant: 'BF16' }), /has 1 of the 2 parts/);
  });

  test('one that is not there is told with those that are', () => {
    assert.throws(() => select(files, { quant: 'Q4_K' }), /no GGUF file of Q4_K; it has BF16, Q4_K_M, Q4_K_S, Q8_0/);
    assert.throws(() => select(['config.json'], { quant: 'Q4_0' }), /has no GGUF files; leave :Q4_0 away/);
    assert.throws(() => select(['a-Q4_0.gguf', 'b-Q4_0.gguf'], { quant: 'Q4_0' }), /several GGUF files of Q4_0/);
    assert.deepEqual(select(['a-Q4_0.gguf', 'b-Q4_0.gguf'], { quant: 'Q4_0', exclude: ['b*'] }), ['a-Q4_0.gguf']);
  });
});
