/** The demo model in every quantized format on the CPU, keys and values in float32. */
import { testDemoFormats } from '../helpers/quantized/demo-tests.js';

testDemoFormats({ name: 'cpu', options: {}, eightBits: { weightDtype: 'f32' }, dequantizes: true });
