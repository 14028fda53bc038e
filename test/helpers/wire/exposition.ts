/** Reads Prometheus' text, strictly: every line must be of a family that was announced, and no sample may come twice. */
import assert from 'node:assert/strict';

export interface Line {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ReadFamily {
  readonly type: string;
  readonly help: string;
  readonly lines: Line[];
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)$/;

export class Exposition {
  readonly families = new Map<string, ReadFamily>();

  constructor(text: string) {
    assert.ok(text.endsWith('\n'), 'the last line ends');
    const seen = new Set<string>();
    let help: [string, string] = ['', ''];
    let current = '';
    for (const line of text.split('\n').filter((l) => l !== '')) {
      if (line.startsWith('# HELP ')) {
        help = [line.split(' ')[2] ?? '', line.split(' ').slice(3).join(' ')];
        continue;
      }
      if (line.startsWith('# TYPE ')) {
        const [, , name = '', type = ''] = line.split(' ');
        assert.equal(name, help[0]);
        assert.ok(!this.families.has(name), `${name} comes twice`);
        this.families.set(name, { type, help: help[1], lines: [] });
        current = name;
        continue;
      }
      const [, name = '', labels = '', value = ''] = SAMPLE.exec(line) ?? assert.fail(`no sample: ${line}`);
      const family = this.families.get(current) ?? assert.fail(`no family of ${line}`);
      const own = family.type === 'histogram' ? name.replace(/_(bucket|sum|count)$/, '') : name;
      assert.equal(own, current, line);
      const key = line.slice(0, line.lastIndexOf(' '));
      assert.ok(!seen.has(key), `${key} comes twice`);
      seen.add(key);
      const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, k = '', v = '']) => [k, v] as const);
      family.lines.push({ name, labels: Object.fromEntries(pairs), value: Number(value) });
    }
  }

  family(name: string): ReadFamily {
    return this.families.get(name) ?? assert.fail(`there is no ${name}`);
  }

  /** The one sample of `name` with these labels among others; `_count` and `_sum` of histograms too. */
  value(name: string, labels: Readonly<Record<string, string>> = {}): number {
    const family = this.families.get(name) ?? this.family(name.replace(/_(sum|count)$/, ''));
    const fits = family.lines.filter((l) => l.name === name && Object.entries(labels).every(([k, v]) => l.labels[k] === v));
    assert.equal(fits.length, 1, `${name} ${JSON.stringify(labels)}: ${fits.length} samples`);
    return fits[0]?.value ?? Number.NaN;
  }

  /** Upper edges of a histogram as they are written, the last one infinite; checks that its counts add up. */
  edges(name: string): readonly string[] {
    const buckets = this.family(name).lines.filter((l) => l.name === `${name}_bucket`);
    const counts = buckets.map((l) => l.value);
    assert.deepEqual(
      counts,
      [...counts].sort((a, b) => a - b),
      name,
    );
    assert.equal(counts.at(-1), this.value(`${name}_count`));
    return buckets.map((l) => l.labels['le'] ?? '');
  }
}

/** Figures of a daemon at `http`. */
export async function scrape(http: string, headers: Record<string, string> = {}): Promise<Exposition> {
  const response = await fetch(`${http}/metrics`, { headers });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
  return new Exposition(text);
}
