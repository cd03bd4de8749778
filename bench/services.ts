import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { Agent } from 'undici';
import { listen } from '../env-server/custom/remote/service.test-data.ts';
import { ServerProcess } from './server-process.ts';

/**
 * Sessions of a slow, healthy service: `npm run bench:services`. Each session is opened and takes its steps, all at the
 * same time; the service answers each request after `--ms`. The status is 1 unless all steps succeed.
 */

const options = new Command('bench:services')
  .option('--sessions <n>', 'sessions at the same time', Number, 600)
  .option('--steps <n>', 'steps of each', Number, 2)
  .option('--ms <n>', 'what the service takes to answer', Number, 3000)
  .option('--connections <n>', '`connections` of the definition', Number, 128)
  .parse()
  .opts<{ sessions: number; steps: number; ms: number; connections: number }>();

const service = createServer((request, response) => {
  request.resume().once('end', async () => {
    await sleep(options.ms);
    response.setHeader('content-type', 'application/json').end('{"observation": "on"}');
  });
});
const url = `http://127.0.0.1:${await listen(service)}`;
const server = new ServerProcess(['--remote-networks', '127.0.0.1/32']);
await server.start();
const dispatcher = new Agent({ connections: options.sessions, bodyTimeout: 0, headersTimeout: 0 });

async function post(route: string, body: object): Promise<{ status: number; body: { session_id?: string } }> {
  const init = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    dispatcher,
  };
  const reply = await fetch(`${server.origin}/v1/${route}`, init as RequestInit);
  return { status: reply.status, body: (await reply.json()) as { session_id?: string } };
}

const waits: number[] = [];
const statuses = new Map<number, number>();

async function play(): Promise<void> {
  const opened = await post('sessions', { env_id: 'bench/Slow-v0', seed: 1 });
  count(opened.status);
  for (let step = 0; step < options.steps && opened.status === 201; step++) {
    const begun = performance.now();
    const { status } = await post(`sessions/${opened.body.session_id}/step`, { action: 'on' });
    waits.push(performance.now() - begun);
    count(status);
  }
}

/** @param share from 0 to 1 */
const quantile = (sorted: readonly number[], share: number) =>
  Math.round(sorted[Math.floor(share * (sorted.length - 1))]);

function count(status: number): void {
  statuses.set(status, (statuses.get(status) ?? 0) + 1);
}

try {
  const definition = {
    ...{ kind: 'remote', protocol: 'webhook', url, connections: options.connections },
    ...{ title: 'Slow', instruction: 'Go on.', action_space: { type: 'Text' }, example_action: 'on' },
  };
  const registered = await post('envs', { env_id: 'bench/Slow-v0', definition });
  if (registered.status !== 201) throw new Error(JSON.stringify(registered.body));
  await Promise.all(Array.from({ length: options.sessions }, play));
  const requests = options.sessions * (options.steps + 1);
  const succeeded = (statuses.get(200) ?? 0) + (statuses.get(201) ?? 0);
  waits.sort((a, b) => a - b);
  console.log(
    `${succeeded} of ${requests} requests succeeded; a step took ${quantile(waits, 0.5)} ms (median), ${quantile(waits, 0.99)} ms (99th percentile)`,
    Object.fromEntries(statuses),
  );
  process.exitCode = succeeded === requests ? 0 : 1;
} finally {
  await server.end('SIGKILL');
  service.closeAllConnections();
  service.close();
  await dispatcher.destroy();
}
