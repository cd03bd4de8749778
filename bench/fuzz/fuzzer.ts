import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { Contract, type OpenApi } from './contract.ts';
import { type RawRequest, type Request, type RestRequest, type SocketRequest, SPOILT_ID } from './request.ts';
import { Requests } from './requests.ts';
import { SessionsInPlay } from './sessions-in-play.ts';
import { FUZZ_NAMESPACE, type Offer } from './values.ts';
import { ofAnswer, ofAnyAnswer, ofReply } from './verdict.ts';
import { answerIn, bytesOf, ServerWire } from './wire.ts';

export interface FuzzOptions {
  /** Where the server is, e.g. `http://127.0.0.1:8080`. */
  readonly origin: string;
  /** The first may do everything; others are now and then used in its place. */
  readonly tokens: readonly string[];
  readonly requests: number;
  readonly seed: number;
  /** Told now and then how many requests were made. */
  readonly progress?: (requests: number) => void;
}

/** Something that should not be, with the first request that showed it. */
export interface Fault {
  readonly where: string;
  readonly complaint: string;
  readonly example: string;
  count: number;
}

export interface FuzzReport {
  readonly requests: number;
  readonly seed: number;
  /** Answers by operation or kind of abuse, and status or code. */
  readonly answers: ReadonlyMap<string, ReadonlyMap<string, number>>;
  readonly faults: readonly Fault[];
}

/** Requests that are drawn from one seed; more come from the seeds after it. */
const BLOCK = 500;
const SEEDS_APART = 7919;
/** Share of requests under another token than the first. */
const OTHER_TOKEN_EVERY = 15;
const MAX_EXAMPLE_LENGTH = 600;
/** How long sessions that were closed may be counted still: what runs on them ends first. */
const SETTLING_MS = 10_000;

/**
 * Sends a server requests made from its own OpenAPI document, fitting and broken, and holds every answer against it.
 * @throws Error when the server cannot be asked at all
 */
export async function fuzz(options: FuzzOptions): Promise<FuzzReport> {
  const fuzzer = new Fuzzer(options, new ServerWire(options.origin));
  try {
    return await fuzzer.run();
  } finally {
    fuzzer.close();
  }
}

class Fuzzer {
  readonly #options: FuzzOptions;
  readonly #wire: ServerWire;
  readonly #sessions = new SessionsInPlay();
  readonly #faults = new Map<string, Fault>();
  readonly #answers = new Map<string, Map<string, number>>();
  #sent = 0;
  #contract!: Contract;

  constructor(options: FuzzOptions, wire: ServerWire) {
    this.#options = options;
    this.#wire = wire;
  }

  close(): void {
    this.#wire.close();
  }

  async run(): Promise<FuzzReport> {
    const { requests, seed, progress } = this.#options;
    this.#contract = new Contract((await this.#get('/openapi.json')) as OpenApi);
    const offer = await this.#offer();
    const before = new Set(await this.#open());
    const arbitrary = new Requests(this.#contract, offer, this.#options.tokens).any();
    for (let block = 0; block * BLOCK < requests; block++) {
      const numRuns = Math.min(BLOCK, requests - block * BLOCK);
      for (const request of fc.sample(arbitrary, { seed: seed + block * SEEDS_APART, numRuns })) {
        await this.#send(request);
        this.#sent++;
      }
      await this.#checkHealth();
      progress?.(this.#sent);
    }
    await this.#checkSessions(before);
    return { requests: this.#sent, seed, answers: this.#answers, faults: [...this.#faults.values()] };
  }

  get #headers(): { authorization: string } {
    return { authorization: `Bearer ${this.#options.tokens[0]}` };
  }

  async #get(path: string): Promise<unknown> {
    const { status, body } = await this.#wire.ask('GET', path, this.#headers);
    if (status !== 200) throw new Error(`GET ${path}: ${status} ${body}`);
    return JSON.parse(body.toString());
  }

  async #offer(): Promise<Offer> {
    const { environments } = (await this.#get('/v1/envs')) as { environments: { env_id: string }[] };
    const ids = environments.map(({ env_id }) => env_id);
    const documents = await Promise.all(
      ids.map(id => this.#get(`/v1/envs/${encodeURIComponent(id)}`) as Promise<{ example_action: unknown }>),
    );
    const examples = this.#contract.route('register').examples as readonly { definition: unknown }[];
    return {
      environments: ids,
      actions: documents.map(({ example_action }) => example_action),
      definitions: examples.map(({ definition }) => definition),
    };
  }

  async #send(request: Request): Promise<void> {
    switch (request.transport) {
      case 'rest':
        return this.#sendRest(request);
      case 'raw':
        return this.#sendRaw(request);
      case 'socket':
        return this.#sendFrames(request);
    }
  }

  async #sendRest(marked: RestRequest): Promise<void> {
    const { tokens } = this.#options;
    const other = this.#sent % OTHER_TOKEN_EVERY === 0 ? tokens[1] : undefined;
    const request = this.#sessions.fill(marked);
    const headers =
      other !== undefined && request.addressed
        ? { ...request.headers, authorization: `Bearer ${other}` }
        : request.headers;
    const shown = { ...request, headers };
    await this.#guard(request.operation, shown, async () => {
      const body = request.body && bytesOf(request.body);
      const answer = await this.#wire.ask(request.method, request.path, headers, body);
      const text = answer.body.toString('utf8');
      this.#count(request.operation, answer.status, text);
      this.#sessions.learn(text, request);
      if (!request.addressed) return ofAnyAnswer(this.#contract, answer, request.method !== 'HEAD');
      const route = this.#contract.route(request.operation);
      return ofAnswer(this.#contract, route, request, answer);
    });
  }

  async #sendRaw({ request, abuse, at }: RawRequest): Promise<void> {
    const abused = abuse(this.#sessions.fill(request), at);
    const what = `raw: ${abused.what}`;
    await this.#guard(what, abused, async () => {
      const answer = answerIn(await this.#wire.pour(bytesOf(abused.bytes), abused.cut));
      if (answer === undefined) {
        this.#count(what, 'hung up', '');
        return abused.cut ? undefined : 'it hung up without an answer';
      }
      const text = answer.body.toString('utf8');
      this.#count(what, answer.status, text);
      this.#sessions.learn(text, abused);
      return ofAnyAnswer(this.#contract, answer, !abused.bytes.text.startsWith('HEAD'));
    });
  }

  async #sendFrames(marked: SocketRequest): Promise<void> {
    const request = this.#sessions.fill(marked);
    const complain = (complaint: string, example: unknown) => this.#complain('frames', complaint, example);
    await this.#guard('frames', request, async () => {
      const { replies, closed } = await this.#wire.exchange(request.protocol, request.frames, this.#headers);
      if (closed !== undefined) return `${replies.length} of ${request.frames.length} replies: ${closed}`;
      const asked = framesById(request);
      for (const reply of replies) {
        const text = JSON.stringify(reply);
        this.#sessions.learn(text, request);
        const frame = asked.get(reply.id) ?? {};
        this.#count(`frame ${this.#opOf(frame)}`, reply.ok === true ? 'ok' : 'problem', text);
        const unfit = this.#contract.checkComponent('ReplyFrame')(reply);
        const complaint = unfit
          ? `a reply does not fit: ${unfit}`
          : asked.has(reply.id)
            ? ofReply(this.#contract, frame, reply)
            : undefined;
        if (complaint) complain(complaint, { frame, reply });
      }
      return undefined;
    });
  }

  #opOf({ op }: { op?: unknown }): string {
    const known = typeof op === 'string' && (op === 'ping' || op === 'batch' || this.#contract.items.has(op));
    return known ? op : 'odd';
  }

  /** Notes the complaint that comes of an exchange, or that there was none. */
  async #guard(where: string, request: unknown, work: () => Promise<string | undefined>): Promise<void> {
    let complaint: string | undefined;
    try {
      complaint = await work();
    } catch (error) {
      complaint = `it could not be asked, or its answer not be read: ${(error as Error).message}`;
    }
    if (complaint) this.#complain(where, complaint, request);
  }

  #complain(where: string, complaint: string, about: unknown): void {
    // Faults that differ only between sessions count once.
    const key = `${where} ${complaint.replaceAll(/s[\w-]{16}|\d+/g, '#').slice(0, 120)}`;
    const known = this.#faults.get(key);
    if (known) {
      known.count++;
      return;
    }
    const example = JSON.stringify(about).slice(0, MAX_EXAMPLE_LENGTH);
    this.#faults.set(key, { where, complaint, example, count: 1 });
  }

  #count(where: string, status: string | number, text: string): void {
    const code = /"code":"(\w+)"/.exec(text)?.[1];
    const what = code !== undefined && status !== 200 ? `${status} ${code}` : String(status);
    let counts = this.#answers.get(where);
    if (!counts) {
      counts = new Map();
      this.#answers.set(where, counts);
    }
    counts.set(what, (counts.get(what) ?? 0) + 1);
  }

  async #checkHealth(): Promise<void> {
    for (const path of ['/livez', '/readyz']) {
      await this.#guard('health', path, async () => {
        const { status } = await this.#wire.ask('GET', path);
        return status === 200 ? undefined : `${path} answers ${status}`;
      });
    }
  }

  /** Ids of all sessions that are open. */
  async #open(): Promise<string[]> {
    const ids: string[] = [];
    for (let cursor: string | null = '0'; cursor !== null; ) {
      const page = (await this.#get(`/v1/sessions?limit=1000&cursor=${cursor}`)) as {
        sessions: { session_id: string }[];
        next_cursor: string | null;
      };
      ids.push(...page.sessions.map(({ session_id }) => session_id));
      cursor = page.next_cursor;
    }
    return ids;
  }

  /** No session is open that nobody was told of; and all that were opened can be closed, with nothing left. */
  async #checkSessions(before: ReadonlySet<string>): Promise<void> {
    const ours = (await this.#open()).filter(id => !before.has(id));
    const unknown = ours.filter(id => !this.#sessions.made.has(id));
    if (unknown.length > this.#sessions.untold) {
      const complaint = `${unknown.length} sessions are open that no reply told of, ${this.#sessions.untold} of them expected`;
      this.#complain('sessions', complaint, unknown.slice(0, 10));
    }
    for (const id of ours) await this.#wire.ask('DELETE', `/v1/sessions/${id}`, this.#headers);
    await this.#removeEnvironments();
    const end = performance.now() + SETTLING_MS;
    let left = await this.#counted();
    while (left > before.size && performance.now() < end) {
      await delay(100);
      left = await this.#counted();
    }
    if (left > before.size) this.#complain('sessions', `${left} are counted when all are closed`, {});
  }

  async #removeEnvironments(): Promise<void> {
    const { environments } = (await this.#get('/v1/envs')) as { environments: { env_id: string }[] };
    for (const { env_id } of environments) {
      if (!env_id.startsWith(`${FUZZ_NAMESPACE}/`)) continue;
      await this.#wire.ask('DELETE', `/v1/envs/${encodeURIComponent(env_id)}`, this.#headers);
    }
  }

  /** Open sessions as the metrics have it. */
  async #counted(): Promise<number> {
    const { body } = await this.#wire.ask('GET', '/metrics', this.#headers);
    const lines = body.toString().matchAll(/^ragen_sessions\{[^}]*\} (\d+)$/gm);
    return [...lines].reduce((sum, [, count]) => sum + Number(count), 0);
  }
}

/** Frames by ids that are no other frame's. */
function framesById({ frames }: SocketRequest): Map<unknown, { readonly [key: string]: unknown }> {
  const found = new Map<unknown, { readonly [key: string]: unknown }>();
  const twice = new Set<unknown>();
  for (const frame of frames) {
    if (!('value' in frame)) {
      twice.add(SPOILT_ID);
      continue;
    }
    const { id } = frame.value;
    if (found.has(id)) twice.add(id);
    found.set(id, frame.value);
  }
  for (const id of twice) found.delete(id);
  return found;
}
