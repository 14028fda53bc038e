/** A headless Chromium, driven by its DevTools protocol over one WebSocket. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { WebSocket } from 'ws';
import { eventually, inTime } from '../helpers/eventually.js';
import { tempFolder } from '../helpers/temp-folder.js';
import { findBrowser } from './find-browser.js';

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

export class Browser {
  readonly #process: ChildProcess;
  readonly #ws: WebSocket;
  readonly #waiting = new Map<number, (message: Message) => void>();
  #nextId = 1;
  #session = '';
  /** What the page complained about: exceptions, errors on the console, breaches of its policy. */
  readonly complaints: string[] = [];
  /** Addresses that were asked for, data: ones left out. */
  readonly asked: string[] = [];

  private constructor(process: ChildProcess, ws: WebSocket) {
    this.#process = process;
    this.#ws = ws;
    ws.on('message', (data: Buffer) => this.#take(JSON.parse(data.toString()) as Message));
  }

  /** @throws when there is none */
  static async start(): Promise<Browser> {
    const found = findBrowser();
    if (found === undefined)
      throw new Error('No Chromium was found; install one (Debian: apt install chromium), or name it in INFERD_CHROMIUM');
    const options = ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-port=0', `--user-data-dir=${tempFolder()}`];
    const child = spawn(found, [...options, 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'] });
    const url = await inTime(
      'the browser listens',
      new Promise<string>((resolve) => {
        let text = '';
        child.stderr?.on('data', (part: Buffer) => {
          text += part.toString();
          const found = /DevTools listening on (\S+)/.exec(text)?.[1];
          if (found !== undefined) resolve(found);
        });
      }),
    );
    const ws = new WebSocket(url);
    await once(ws, 'open');
    const browser = new Browser(child, ws);
    const { targetId } = await browser.#send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await browser.#send('Target.attachToTarget', { targetId, flatten: true });
    browser.#session = String(sessionId);
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await browser.#send(`${domain}.enable`);
    return browser;
  }

  async #send(method: string, params: object = {}): Promise<Readonly<Record<string, unknown>>> {
    const id = this.#nextId++;
    const answer = new Promise<Message>((resolve) => this.#waiting.set(id, resolve));
    this.#ws.send(JSON.stringify({ id, method, params, ...(this.#session === '' ? {} : { sessionId: this.#session }) }));
    const { result = {}, error } = await inTime(method, answer);
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  #take({ id, method, params, ...rest }: Message): void {
    if (id !== undefined) {
      this.#waiting.get(id)?.(rest);
      this.#waiting.delete(id);
    } else if (method === 'Runtime.exceptionThrown') this.complaints.push(JSON.stringify(params?.['exceptionDetails']));
    else if (method === 'Network.requestWillBeSent') this.#ask((params?.['request'] as { readonly url?: string } | undefined)?.url);
    else if (method === 'Network.webSocketCreated') this.#ask(params?.['url']);
    else if (method === 'Runtime.consoleAPICalled') {
      if (params?.['type'] === 'error') this.complaints.push(JSON.stringify(params['args']));
    } else if (method === 'Log.entryAdded') {
      const { level, text } = (params?.['entry'] ?? {}) as { level?: string; text?: string };
      if (level === 'error') this.complaints.push(text ?? '');
    }
  }

  #ask(url: unknown): void {
    if (typeof url === 'string' && !/^(?:data|about):/.test(url)) this.asked.push(url);
  }

  /** What a screen reader is told: role and name of each control and landmark that is there now. */
  async accessible(): Promise<readonly { readonly role: string; readonly name: string }[]> {
    const { nodes } = await this.#send('Accessibility.getFullAXTree');
    // proof: the shape that the protocol gives
    const all = nodes as readonly { readonly ignored: boolean; readonly role?: { value: string }; readonly name?: { value: string } }[];
    return all.filter(({ ignored }) => !ignored).map(({ role, name }) => ({ role: role?.value ?? '', name: name?.value ?? '' }));
  }

  /** Bytes of JavaScript that are alive after a collection, and nodes of the document, those that are not shown included. */
  async weight(): Promise<{ readonly heapBytes: number; readonly nodes: number }> {
    await this.#send('HeapProfiler.collectGarbage');
    const { usedSize } = await this.#send('Runtime.getHeapUsage');
    const { nodes } = await this.#send('Memory.getDOMCounters');
    return { heapBytes: Number(usedSize), nodes: Number(nodes) };
  }

  /** Loads a page anew and waits until `ready`, an expression, is true in it. */
  async open(url: string, ready: string): Promise<void> {
    await this.#send('Page.navigate', { url: 'about:blank' });
    await this.#send('Page.navigate', { url });
    await this.until(ready);
  }

  /** The value of an expression in the page. */
  async value(expression: string): Promise<unknown> {
    const { result, exceptionDetails } = await this.#send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails !== undefined) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    return (result as { readonly value?: unknown }).value;
  }

  until(expression: string): Promise<void> {
    return eventually(expression, () => this.value(expression).then(Boolean));
  }

  /** Clicks the first element that a selector finds. */
  async click(selector: string): Promise<void> {
    await this.value(`document.querySelector(${JSON.stringify(selector)}).click()`);
  }

  /** Types into what has the focus. */
  async type(text: string): Promise<void> {
    await this.#send('Input.insertText', { text });
  }

  /** Presses a key: "Tab", "ArrowDown", "Enter"; `modifiers`: 2 is Ctrl. */
  async press(key: string, modifiers = 0): Promise<void> {
    const text = key.length === 1 ? { text: key } : key === 'Enter' ? { text: '\r' } : {};
    await this.#send('Input.dispatchKeyEvent', { type: 'keyDown', key, code: key, modifiers, ...text });
    await this.#send('Input.dispatchKeyEvent', { type: 'keyUp', key, code: key, modifiers });
  }

  /** Window size in CSS pixels, and the colours that the system asks for. */
  async look(width: number, height: number, colours: 'light' | 'dark'): Promise<void> {
    await this.#send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
    await this.#send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: colours }] });
  }

  /** Writes what the window shows as a PNG into the folder INFERD_SCREENSHOTS, where that is set. */
  async shoot(name: string): Promise<void> {
    const folder = process.env['INFERD_SCREENSHOTS'];
    if (folder === undefined) return;
    const { data } = await this.#send('Page.captureScreenshot', { format: 'png' });
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${folder}/${name}.png`, Buffer.from(String(data), 'base64'));
  }

  async close(): Promise<void> {
    this.#ws.close();
    const gone = once(this.#process, 'exit');
    this.#process.kill();
    await gone;
  }
}
