import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { EXAMPLES } from '../../env-server/custom/examples.ts';
import type { JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import type { Game } from './player.ts';

const SLOW = 'soak/Slow-v0';
const MAX_ATTEMPTS = 5;
const MOVES = ['Left', 'Down', 'Right', 'Up'];

/** Built-in and custom environments of every kind. */
const GAMES: readonly Game[] = [
  {
    create: { env_id: 'FrozenLake-v0', config: { p_frozen: 0.9, success_rate: 0.7, max_steps: 40 } },
    actions: MOVES,
    repeatable: true,
  },
  { create: { env_id: SLOW }, actions: ['Add', 'Rest'], repeatable: false },
  { create: { env_id: 'Game2048-v0' }, actions: MOVES, repeatable: true },
  {
    create: {
      env_id: String(EXAMPLES.tabular.value.env_id),
      wrappers: [{ name: 'sticky_actions', options: { probability: 0.3 } }],
    },
    actions: ['Swim', 'Ferry'],
    repeatable: true,
  },
  {
    create: { env_id: String(EXAMPLES.script.value.env_id) },
    actions: ['1', '4', '5', '8', 'none'],
    repeatable: true,
  },
  { create: { env_id: 'Countdown-v0' }, actions: ['1 + 1', '2 * 3', 'nothing'], repeatable: true },
];

/** Half of them, so that half the clients wait for the slow one. */
export function gamesFor(client: number): Game[] {
  return GAMES.filter((_game, index) => index % 2 === Math.floor(client / 4) % 2);
}

/** Registers the custom ones. */
export async function registerGames(origin: string, serviceUrl: string): Promise<void> {
  const slow = { env_id: SLOW, definition: slowDefinition(serviceUrl) };
  for (const registration of [EXAMPLES.tabular.value, EXAMPLES.script.value, slow]) {
    for (let attempt = 1; ; attempt++) {
      const response = await fetch(`${origin}/v1/envs`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(registration),
      });
      if (response.status === 201) break;
      const text = await response.text();
      // The slow service hangs up now and then, also while it is tried.
      if (attempt === MAX_ATTEMPTS) throw new Error(`${registration.env_id}: ${text}`);
    }
  }
}

/** Longest time the service takes for an answer, in milliseconds. */
const SLOWEST_MS = 200;
/** Share of requests it hangs up on without an answer. */
const MUTE = 0.02;

export interface SlowService {
  readonly url: string;
  close(): void;
}

/** Somebody's environment that is slow and now and then hangs up: counts to twenty; its state travels. */
export async function slowService(seed: number): Promise<SlowService> {
  const random = Random.fromSeed(seed);
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    if (random.chance(MUTE)) {
      request.socket.destroy();
      return;
    }
    const { state, action } = JSON.parse(text) as { state?: { count: number }; action?: string };
    const isReset = request.url === '/reset';
    const count = isReset ? 0 : (state?.count ?? 0) + (action === 'Add' ? 1 : 0);
    const outcome = { reward: count / 20, terminated: count >= 20, info: { success: count >= 20 } };
    const answer = { observation: `Count ${count}.`, state: { count }, ...(!isReset && outcome) };
    setTimeout(() => response.end(JSON.stringify(answer)), random.integer(SLOWEST_MS));
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Its registration. */
function slowDefinition(url: string): JsonObject {
  return {
    kind: 'remote',
    protocol: 'webhook',
    url,
    title: 'Slow counting',
    instruction: 'Count to twenty.',
    action_space: { type: 'Discrete', names: ['Add', 'Rest'] },
    example_action: 'Add',
    max_episode_steps: 30,
    capabilities: { snapshot: true, seed: false },
  };
}
