import { createServer, type IncomingMessage } from 'node:http';
import { parseArgs } from 'node:util';

/**
 * An environment as a web service that keeps nothing: `npx node docs/examples/nim.ts --port 9002`.
 *
 * Nim: a heap of stones, each side takes one to three, who takes the last one wins. The whole state travels with
 * every message (capability `snapshot`), so the environment server can remember, copy and repeat it, and any number
 * of these services can stand behind one address. What the opponent draws comes from the seed of the step.
 */

interface State {
  readonly stones: number;
}

interface Request {
  readonly config: { readonly stones: number };
  readonly seed: number;
  readonly state: State;
  readonly action: string;
}

const TAKES: { readonly [action: string]: number } = { 'Take 1': 1, 'Take 2': 2, 'Take 3': 3 };

function reset({ config }: Request) {
  return shown({ stones: config.stones });
}

function step({ state, action, seed }: Request) {
  const mine = TAKES[action];
  if (mine === undefined || mine > state.stones) {
    return { ...shown(state), reward: 0, info: { action_is_valid: false } };
  }
  const left = state.stones - mine;
  if (left === 0) return { ...shown({ stones: 0 }), reward: 1, terminated: true, info: { success: true } };
  const theirs = Math.min(left, 1 + (seed % 3));
  const stones = left - theirs;
  return { ...shown({ stones }), reward: stones === 0 ? -1 : 0, terminated: stones === 0 };
}

/** Fields of every reply: the state, its observation, the valid actions. */
function shown(state: State) {
  const { stones } = state;
  return {
    state,
    observation: stones === 1 ? 'One stone is left.' : `${stones} stones are left.`,
    valid_actions: Object.keys(TAKES).filter(action => TAKES[action] <= stones),
  };
}

const ROUTES = new Map<string | undefined, (request: Request) => object>([
  ['/reset', reset],
  ['/step', step],
]);

async function bodyOf(request: IncomingMessage): Promise<Request> {
  let text = '';
  for await (const chunk of request) text += chunk;
  return JSON.parse(text);
}

const server = createServer(async (request, response) => {
  const route = ROUTES.get(request.url);
  const reply = route ? route(await bodyOf(request)) : { detail: 'no such route' };
  response.writeHead(route ? 200 : 404, { 'content-type': 'application/json' }).end(JSON.stringify(reply));
});

const { values } = parseArgs({ options: { port: { type: 'string', default: '9002' } } });
server.listen(Number(values.port), '127.0.0.1', () => {
  const address = server.address();
  console.log(`listening on http://127.0.0.1:${typeof address === 'object' ? address?.port : values.port}`);
});
