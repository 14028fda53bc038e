/** What a person does with the page at /: finds controls by their names, types, waits for answers. */
import type { Browser } from '../browser.js';

export class Home {
  readonly #browser: Browser;
  readonly #url: string;

  constructor(browser: Browser, url: string) {
    this.#browser = browser;
    this.#url = url;
  }

  /** Loads the page anew and waits until it has its connection. `part`: what its address names. */
  async open(part = 'chat'): Promise<void> {
    await this.#browser.open(`${this.#url}/#/${part}`, "document.getElementById('state') !== null");
    await this.connected();
  }

  connected(): Promise<void> {
    return this.#browser.until(
      "document.getElementById('state').dataset.state === 'open' && document.querySelector('select')?.options.length > 0",
    );
  }

  /** Fills in the control with this label. */
  async set(label: string, value: string): Promise<void> {
    await this.#browser.value(`{
      const field = ${byLabel(label)};
      field.value = ${JSON.stringify(value)};
      field.dispatchEvent(new Event('input', { bubbles: true }));
      field.dispatchEvent(new Event('change', { bubbles: true }));
    }`);
  }

  /** The same of a control whose name is no text beside it. */
  async setNamed(name: string, value: string): Promise<void> {
    await this.#browser.value(`{
      const field = document.querySelector('[aria-label=${JSON.stringify(name)}]');
      field.value = ${JSON.stringify(value)};
      field.dispatchEvent(new Event('change', { bubbles: true }));
    }`);
  }

  async check(label: string): Promise<void> {
    await this.#browser.value(`${byLabel(label)}.click()`);
  }

  /** Clicks the button with this text. */
  async press(text: string): Promise<void> {
    await this.#browser.value(`[...document.querySelectorAll('button')].find((b) => b.textContent === ${JSON.stringify(text)}).click()`);
  }

  /** Types a message and sends it with Enter. */
  async say(message: string): Promise<void> {
    const field = `document.querySelector('textarea[aria-label="Message"]')`;
    await this.#browser.value(`${field}.value = ''`);
    await this.#browser.value(`${field}.focus()`);
    await this.#browser.type(message);
    await this.#browser.press('Enter');
  }

  /** Asks for an answer that takes seconds and does not end by itself before. */
  async sayForLong(): Promise<void> {
    await this.set('Max tokens', '3000');
    await this.set(
      'JSON schema',
      JSON.stringify({ type: 'array', minItems: 400, maxItems: 500, items: { const: 'again, and again, and again' } }),
    );
    await this.say('Tell me a story about a fox.');
    await this.#browser.until("document.querySelector('.turn.assistant:last-child .answer')?.textContent.length > 5");
  }

  async send(): Promise<void> {
    await this.press('Send');
  }

  /** Resolves when no answer is being made, and there is one. */
  answered(): Promise<void> {
    return this.#browser.until("document.querySelector('.turn.assistant') !== null && document.querySelector('.turn[aria-busy]') === null");
  }

  lastAnswer(): Promise<string> {
    return this.text('.turn.assistant:last-child .answer');
  }

  /** What is wider than its place, so that one would have to scroll sideways. */
  async tooWide(): Promise<string[]> {
    return (await this.#browser.value(
      "[document.documentElement, ...document.querySelectorAll('main, main > section')].filter((n) => n.scrollWidth > n.clientWidth).map((n) => n.id || n.tagName)",
    )) as string[];
  }

  async text(selector: string): Promise<string> {
    return String(await this.#browser.value(`document.querySelector(${JSON.stringify(selector)})?.textContent ?? ''`));
  }
}

function byLabel(label: string): string {
  return `[...document.querySelectorAll('label')].find((l) => l.querySelector('span')?.textContent === ${JSON.stringify(label)}).querySelector('input, select, textarea')`;
}
