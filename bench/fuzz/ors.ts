import { request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { PROBLEMS } from '../../env-server/problems.ts';
import { Random } from '../../shared/random.ts';
import type { FuzzReport } from './fuzzer.ts';
import { type Answer, ServerWire } from './wire.ts';

/** Fuzzes the transport of the Open Reward Standard, whose routes are not in the OpenAPI document. */

const INNARDS = /\bat [^\n"]*\.[cm]?[jt]s:\d+|node:internal|node_modules/;
const ENVIRONMENTS = ['FrozenLake-v0', 'Bandit-v0', 'SearchQA-v0', 'Nothing-v0', 'a%2Fb-v1', '%00-v0', ''];
/** No ids of sessions. */
const BAD_SESSIONS = ['a b', '', 'x'.repeat(200), '../..', '\u00e9'];
/** An id is for one episode, so others come into use after so many requests. */
const REQUESTS_A_SESSION = 40;
const SESSIONS = 2;
const ROUTES: readonly (readonly [method: 'GET' | 'POST', route: string])[] = [
  ['GET', 'tools'],
  ['GET', 'splits'],
  ['POST', 'tasks'],
  ['POST', 'num_tasks'],
  ['POST', 'task'],
  ['POST', 'task_range'],
  ['GET', 'prompt'],
  ['GET', 'task_tools'],
  ['POST', 'call'],
  ['POST', 'call'],
  ['POST', 'call'],
];
const OF_SESSIONS = new Set(['prompt', 'task_tools', 'call']);
const CREATE = 'create';
const SERVER_ROUTES = [
  ...Array(8).fill(CREATE),
  'create_session',
  'ping',
  'ping',
  'delete',
  'delete_session',
];
/** What stands where something else should. */
const HOSTILE: readonly unknown[] = [
  null,
  true,
  -1,
  1e308,
  2 ** 53,
  '',
  'x'.repeat(5000),
  '\ud800',
  '__proto__',
  [],
  {},
  { __proto__: 1, constructor: { prototype: 1 } },
  JSON.parse(`${'['.repeat(200)}${']'.repeat(200)}`),
];
const HTTP_OK = 200;
const HTTP_ERROR = 400;
const HTTP_FAULT = 500;
const OVERSIZED = 20 * 1024 * 1024;
/** Of the requests one is larger than the server takes, and one hangs up at the first byte of its reply. */
const OVERSIZED_EVERY = 100;
const ABORTED_EVERY = 8;
const BAD_BODY_EVERY = 10;
const SETTLING_MS = 200;

interface OrsRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly route: string;
  readonly headers: { readonly [name: string]: string };
  readonly body: string | undefined;
}

/**
 * Sends requests in any order: for sessions that there are and that there are not, with bodies that fit and that do not,
 * too large ones, and such whose client hangs up; and holds every answer against what the reference promises.
 */
export async function fuzzOrs(options: {
  readonly origin: string;
  readonly token: string;
  readonly requests: number;
  readonly seed: number;
}): Promise<FuzzReport> {
  const { origin, token, requests, seed } = options;
  const rng = Random.fromSeed(seed);
  const wire = new ServerWire(origin);
  const answers = new Map<string, Map<string, number>>();
  const faults = new Map<string, FuzzReport['faults'][number]>();
  try {
    for (let i = 0; i < requests; i++) {
      const generation = Math.floor(i / REQUESTS_A_SESSION);
      if (i % REQUESTS_A_SESSION === 0 && i > 0) await closeAll(wire, token, generation - 1);
      const asked = draw(rng, token, generation);
      if (rng.integer(ABORTED_EVERY) === 0) {
        await hangUp(origin, asked);
        count(answers, asked.route, 'hung up');
        continue;
      }
      const body = asked.body === undefined ? undefined : Buffer.from(asked.body);
      let complaint: string | undefined;
      try {
        const answer = await wire.ask(asked.method, asked.path, asked.headers, body);
        count(answers, asked.route, String(answer.status));
        complaint = complaintOf(asked, answer);
      } catch (error) {
        complaint = `no answer: ${(error as Error).message}`;
        // A body that is too large may be answered before all of it is sent.
        if ((body?.length ?? 0) >= OVERSIZED) complaint = undefined;
      }
      if (complaint === undefined) continue;
      const known = faults.get(`${asked.route} ${complaint}`);
      if (known) known.count++;
      else {
        const example = `${asked.method} ${asked.path} ${JSON.stringify(asked.headers)} ${asked.body?.slice(0, 300)}`;
        faults.set(`${asked.route} ${complaint}`, { where: asked.route, complaint, example, count: 1 });
      }
    }
    await closeAll(wire, token, Math.floor((requests - 1) / REQUESTS_A_SESSION));
  } finally {
    wire.close();
  }
  await delay(SETTLING_MS);
  return { requests, seed, answers, faults: [...faults.values()] };
}

const pick = <T>(rng: Random, list: readonly T[]): T => list[rng.integer(list.length)];

/** The ids that are in use at a time. */
const sessionsOf = (generation: number): string[] =>
  Array.from({ length: SESSIONS }, (_, i) => `fuzz-${generation}-${i}`);

async function closeAll(wire: ServerWire, token: string, generation: number): Promise<void> {
  for (const name of sessionsOf(generation)) {
    await wire.ask('POST', '/delete', { authorization: `Bearer ${token}`, 'x-session-id': name });
  }
}

function draw(rng: Random, token: string, generation: number): OrsRequest {
  const isServers = rng.integer(3) === 0;
  const [method, route] = isServers ? (['POST', pick(rng, SERVER_ROUTES)] as const) : pick(rng, ROUTES);
  // Without an environment the path is about that of the session.
  const environment = OF_SESSIONS.has(route) && rng.integer(2) === 0 ? '' : pick(rng, ENVIRONMENTS);
  const prefix = rng.integer(4) === 0 ? '/compat/ors' : '';
  const path = isServers || environment === '' ? `${prefix}/${route}` : `${prefix}/${environment}/${route}`;
  const headers: { [name: string]: string } = { authorization: `Bearer ${token}` };
  const name = pick(rng, rng.integer(8) === 0 ? BAD_SESSIONS : sessionsOf(generation));
  if (rng.integer(10) > 0) headers['x-session-id'] = Buffer.from(name).toString('latin1');
  if (rng.integer(5) === 0) headers['x-deployment'] = pick(rng, ['FrozenLake-v0', 'Nothing-v0', '']);
  if (method === 'GET') return { method, path, route, headers, body: undefined };
  headers['content-type'] = 'application/json';
  return { method, path, route, headers, body: bodyOf(rng, route) };
}

function bodyOf(rng: Random, route: string): string {
  if (rng.integer(OVERSIZED_EVERY) === 0) return `{"a":"${'x'.repeat(OVERSIZED)}"}`;
  if (rng.integer(BAD_BODY_EVERY) === 0) return pick(rng, ['', '{', 'null', '[]', '"x"', '{"a":}', '\u0000']);
  const body = fitting(rng, route);
  if (rng.integer(3) === 0) body[pick(rng, [...Object.keys(body), 'more', '__proto__'])] = pick(rng, HOSTILE);
  return JSON.stringify(body);
}

function fitting(rng: Random, route: string): { [key: string]: unknown } {
  const split = pick(rng, ['train', 'test', 'validation', 'none']);
  const index = rng.integer(2000) - 500;
  switch (route) {
    case 'tasks':
    case 'num_tasks':
      return { split };
    case 'task':
      return { split, index };
    case 'task_range':
      return { split, start: index, stop: index + rng.integer(50) };
    case 'create': {
      const env_name = pick(rng, ['FrozenLake-v0', 'SearchQA-v0', 'Bandit-v0', 'Nothing-v0']);
      const format = pick(rng, ['text', 'parts', 'image', 'none']);
      return rng.integer(2) === 0
        ? { env_name, split, index }
        : { env_name, task_spec: { seed: rng.integer(10), observation_format: format } };
    }
    case 'call': {
      const name = pick(rng, [
        'step',
        'step',
        'observe',
        'valid_actions',
        'search',
        'reset',
        'close_session',
        'fly',
      ]);
      const input = pick(rng, [{ action: 'Right' }, { action: pick(rng, HOSTILE) }, { query: 'who' }, {}]);
      return { name, input, ...(rng.integer(4) === 0 && { task_id: pick(rng, ['t1', 't2', 't3']) }) };
    }
    default:
      return {};
  }
}

/** What is wrong with an answer. */
function complaintOf({ route }: OrsRequest, { status, headers, body }: Answer): string | undefined {
  const text = body.toString('utf8');
  const type = headers['content-type'] ?? '';
  if (INNARDS.test(text)) return 'it tells of the inside of the server';
  if (status >= HTTP_FAULT) return `status ${status}: ${text.slice(0, 200)}`;
  if (status >= HTTP_ERROR) {
    if (!type.startsWith('application/problem+json')) return `status ${status} came as ${type}`;
    const { code } = JSON.parse(text) as { code: keyof typeof PROBLEMS };
    return PROBLEMS[code]?.status === status ? undefined : `${code} came with ${status}`;
  }
  if (status !== HTTP_OK) return `status ${status}`;
  if (route !== 'call' && route !== 'create_session') {
    JSON.parse(text);
    return undefined;
  }
  if (!type.startsWith('text/event-stream')) return `events came as ${type}`;
  return complaintOfEvents(text);
}

function complaintOfEvents(text: string): string | undefined {
  const events = text
    .split('\n\n')
    .filter(part => part.startsWith('event: '))
    .map(part => part.split('\n'));
  const names = events.map(([name]) => name.slice('event: '.length));
  if (names[0] !== 'task_id') return `the first event is ${names[0]}`;
  if (names.at(-1) === 'error') return undefined;
  if (names.at(-1) !== 'end') return `the last event is ${names.at(-1)}`;
  const data = events.slice(1).map(lines => lines[1].slice('data: '.length).trimStart());
  const result = JSON.parse(data.join('')) as { ok?: unknown; sid?: unknown };
  return typeof result.ok === 'boolean' || typeof result.sid === 'string'
    ? undefined
    : 'no result in the end';
}

/** Sends a request and hangs up at the first byte of the reply. */
async function hangUp(origin: string, { method, path, headers, body }: OrsRequest): Promise<void> {
  await new Promise<void>(resolve => {
    const sent = request(new URL(path, origin), { method, headers });
    sent.on('response', response => {
      response.on('error', () => undefined);
      response.destroy();
      resolve();
    });
    sent.on('error', () => resolve());
    sent.end(body);
  });
}

function count(answers: Map<string, Map<string, number>>, route: string, what: string): void {
  const counts = answers.get(route) ?? new Map<string, number>();
  answers.set(route, counts.set(what, (counts.get(what) ?? 0) + 1));
}
