/** Families of models that reason before they answer. */
import { marker } from '../marker.js';
import type { ReasoningFormat } from '../reasoning-reader.js';

function tags(name: string, start: string, end: string): ReasoningFormat {
  return { name, start: marker(start), end: marker(end), fits: (template) => template.includes(end) };
}

/** Qwen 3, DeepSeek-R1 and most others; Mistral's. In the order in which a template is asked. */
export const reasoningFormats: readonly ReasoningFormat[] = [tags('think', '<think>', '</think>'), tags('mistral', '[THINK]', '[/THINK]')];
