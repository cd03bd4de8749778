import { request } from 'node:http';
import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { hostOf } from '../../../test/wire.test-data.ts';
import { createApp } from '../../app.ts';
import { PROBLEMS } from '../../problems.ts';
import { hashToken } from '../access/auth.ts';

/** Requests in any order, fitting and not, with clients that hang up: the Open Reward Standard has no OpenAPI document. */

const REQUESTS = 300;
const SEED = 1;
const INTERNALS = /\bat [^\n"]{1,300}\.[cm]?[jt]s:\d|node:internal|node_modules/;
const OVERSIZED_BYTES = 20 * 1024 * 1024;
const ENVIRONMENTS = ['FrozenLake-v0', 'Bandit-v0', 'SearchQA-v0', 'Nothing-v0', 'a%2Fb-v1', '%00-v0', ''];
const SESSIONS = ['fuzz-0', 'fuzz-1', 'fuzz-0', 'fuzz-1', 'a b', '', 'x'.repeat(200), '../..', '\u00e9'];
const ROUTES = [
  'GET tools',
  'GET splits',
  'POST tasks',
  'POST num_tasks',
  'POST task',
  'POST task_range',
  'GET prompt',
  'GET task_tools',
  'POST call',
  'POST call',
  'POST call',
];
const SERVER_ROUTES = ['create', 'create', 'create', 'create_session', 'ping', 'delete', 'delete_session'];
const SESSION_ROUTES = new Set(['prompt', 'task_tools', 'call']);
const TOOLS = ['step', 'step', 'observe', 'valid_actions', 'search', 'reset', 'close_session', 'fly'];
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
  { constructor: { prototype: 1 } },
  JSON.parse(`${'['.repeat(200)}${']'.repeat(200)}`),
];

interface Drawn {
  readonly method: string;
  readonly path: string;
  readonly route: string;
  readonly headers: { readonly [name: string]: string };
  readonly body: string | undefined;
}

function fittingBody(rng: Random, route: string): { [key: string]: unknown } {
  const split = rng.choice(['train', 'test', 'validation', 'none']);
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
      const env_name = rng.choice(['FrozenLake-v0', 'SearchQA-v0', 'Bandit-v0', 'Nothing-v0']);
      const observation_format = rng.choice(['text', 'parts', 'image', 'none']);
      return rng.chance(0.5)
        ? { env_name, split, index }
        : { env_name, task_spec: { seed: rng.integer(10), observation_format } };
    }
    case 'call': {
      const input = rng.choice([{ action: 'Right' }, { action: rng.choice(HOSTILE) }, { query: 'who' }, {}]);
      return {
        name: rng.choice(TOOLS),
        input,
        ...(rng.chance(0.25) && { task_id: rng.choice(['t1', 't2']) }),
      };
    }
    default:
      return {};
  }
}

function drawBody(rng: Random, route: string): string {
  if (rng.chance(0.01)) return `{"a":"${'x'.repeat(OVERSIZED_BYTES)}"}`;
  if (rng.chance(0.1)) return rng.choice(['', '{', 'null', '[]', '"x"', '{"a":}', '\u0000']);
  const body = fittingBody(rng, route);
  if (rng.chance(0.33)) body[rng.choice([...Object.keys(body), 'more'])] = rng.choice(HOSTILE);
  return JSON.stringify(body);
}

function draw(rng: Random): Drawn {
  const isServers = rng.chance(0.33);
  const [method, route] = isServers ? ['POST', rng.choice(SERVER_ROUTES)] : rng.choice(ROUTES).split(' ');
  const environment = SESSION_ROUTES.has(route) && rng.chance(0.5) ? '' : rng.choice(ENVIRONMENTS);
  const prefix = rng.chance(0.25) ? '/compat/ors' : '';
  const path = isServers || environment === '' ? `${prefix}/${route}` : `${prefix}/${environment}/${route}`;
  const headers: { [name: string]: string } = { authorization: 'Bearer play' };
  if (rng.chance(0.9)) headers['x-session-id'] = Buffer.from(rng.choice(SESSIONS)).toString('latin1');
  if (rng.chance(0.2)) headers['x-deployment'] = rng.choice(['FrozenLake-v0', 'Nothing-v0', '']);
  if (method === 'GET') return { method, path, route, headers, body: undefined };
  return {
    method,
    path,
    route,
    headers: { ...headers, 'content-type': 'application/json' },
    body: drawBody(rng, route),
  };
}

/** Status, content type and text of the reply; undefined where the connection ends first. */
function send(
  origin: string,
  { method, path, headers, body }: Drawn,
  hangUp: boolean,
): Promise<{ status: number; type: string; text: string } | undefined> {
  return new Promise(resolve => {
    const sent = request(new URL(path, origin), { method, headers }, response => {
      response.on('error', () => resolve(undefined));
      if (hangUp) {
        response.destroy();
        resolve(undefined);
        return;
      }
      let text = '';
      response.on('data', chunk => {
        text += chunk;
      });
      response.on('end', () =>
        resolve({ status: response.statusCode!, type: response.headers['content-type'] ?? '', text }),
      );
    });
    sent.on('error', () => resolve(undefined));
    sent.end(body);
  });
}

/** First fault of a stream of events; undefined when it ends with a result or an error. */
function eventFault(text: string): string | undefined {
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
  return typeof result.ok === 'boolean' || typeof result.sid === 'string' ? undefined : 'there is no result';
}

t.test('the Open Reward Standard answers every request, fitting or not, with what it documents', async t => {
  const tokens = [{ name: 'play', sha256: hashToken('play'), scopes: ['play'] }];
  const app = await createApp({ logLevel: 'silent', maxSessions: 3, tokens: JSON.stringify(tokens) });
  t.teardown(() => app.server.close());
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  const origin = `http://${hostOf(app)}`;
  const rng = Random.fromSeed(SEED);
  const statuses = new Set<number>();
  for (let i = 0; i < REQUESTS; i++) {
    const drawn = draw(rng);
    const hangUp = rng.chance(0.1);
    const answer = await send(origin, drawn, hangUp);
    const example = `${drawn.method} ${drawn.path} ${drawn.body?.slice(0, 200)} -> ${JSON.stringify(answer)?.slice(0, 300)}`;
    if (!answer) {
      if (!hangUp && (drawn.body?.length ?? 0) < OVERSIZED_BYTES) t.fail(`no answer: ${example}`);
      continue;
    }
    const { status, type, text } = answer;
    statuses.add(status);
    if (status >= 500 || INTERNALS.test(text)) t.fail(example);
    else if (status >= 400) {
      const { code } = JSON.parse(text) as { code: keyof typeof PROBLEMS };
      if (!type.startsWith('application/problem+json') || PROBLEMS[code]?.status !== status) t.fail(example);
    } else if (drawn.route === 'call' || drawn.route === 'create_session') {
      const fault = type.startsWith('text/event-stream') ? eventFault(text) : `events came as ${type}`;
      if (fault) t.fail(`${fault}: ${example}`);
    } else JSON.parse(text);
  }
  for (const name of SESSIONS)
    await send(
      origin,
      {
        method: 'POST',
        path: '/delete',
        route: 'delete',
        headers: {
          authorization: 'Bearer play',
          'x-session-id': Buffer.from(name).toString('latin1'),
        },
        body: undefined,
      },
      false,
    );
  t.ok(statuses.size >= 4, `statuses ${[...statuses].join(', ')}`);
  t.equal(app.sessions.size, 0, 'every session could be closed');
});
