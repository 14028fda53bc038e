/** The built-in profile: the embedded demo model on the CPU. What runs where nobody says anything else. */
import { join } from 'node:path';
import { packageRoot } from '../native/index.js';

export const demoProfile = (): string => join(packageRoot(), 'config', 'demo.toml');
