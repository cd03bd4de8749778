import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';

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
export function slowDefinition(url: string): JsonObject {
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
