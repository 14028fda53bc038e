/**
 * The demo model in every quantized format on CUDA. Its bars are those of the CPU: an independent emulation (numpy) of rounding to 16 bits what
 * passes between kernels shows a divergence of 3.4e-7 in bf16 by itself, far below what rounded weights lose but for integers of eight
 * bits; those are computed in f16, where it shows 4.6e-9. In steps of few tokens, whose products have the weights as they are; of more
 * tokens FP8 products round activations too, as prompts of the answers here.
 */
import { testDemoFormats } from '../helpers/quantized/demo-tests.js';

testDemoFormats({
  name: 'cuda',
  options: { backend: 'cuda', kvDtype: 'auto' },
  eightBits: { weightDtype: 'f16' },
  dequantizes: false,
  rows: 16,
});
