/**
 * What watching costs: steps a second of a batch client, alone and with watchers on the WebSocket: `npm run bench:watching`.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createApp } from '../env-server/app.ts';

const SESSIONS = 64;
const ROUND_MS = 1500;
const ROUNDS = 6;
const WATCHERS = 16;

const app = await createApp({ logLevel: 'silent' });
await app.server.listen({ host: '127.0.0.1', port: 0 });
const host = `127.0.0.1:${(app.server.server.address() as AddressInfo).port}`;

async function ask(path: string, body: object) {
  const response = await fetch(`http://${host}/v1/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return response.json();
}

/** Steps a second, by batches over all sessions one after the other. */
async function measure(items: readonly object[]): Promise<number> {
  const end = performance.now() + ROUND_MS;
  let steps = 0;
  while (performance.now() < end) {
    await ask('batch', { items });
    steps += items.length;
  }
  return Math.round((1000 * steps) / ROUND_MS);
}

const { sessions } = await ask('sessions', {
  env_id: 'Sokoban-v0',
  count: SESSIONS,
  wrappers: [{ name: 'auto_reset' }],
});
const items = (sessions as { session_id: string }[]).map(({ session_id }, index) => ({
  op: 'step',
  session_id,
  action: (index % 4) + 1,
}));
await measure(items);
const alone: number[] = [];
const watched: number[] = [];
for (let round = 0; round < ROUNDS; round++) {
  alone.push(await measure(items));
  const watchers = fork(new URL('./watching/watchers.ts', import.meta.url), [host, String(WATCHERS)]);
  await once(watchers, 'message');
  watched.push(await measure(items));
  watchers.kill();
  await once(watchers, 'exit');
}
const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1];
console.log(`steps a second, batches of ${SESSIONS}, median of ${ROUNDS} rounds`);
console.log(`  nobody watches     ${median(alone)}`);
console.log(`  ${WATCHERS} watchers        ${median(watched)}`);
await app.server.close();
