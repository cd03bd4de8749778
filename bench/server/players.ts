import type { Player } from './load.ts';

/** Lakes without holes: episodes are long enough that steps, not resets, are measured. Steps slip as usual. */
const CREATE = {
  env_id: 'FrozenLake-v0',
  config: { p_frozen: 1, success_rate: 0.8, max_steps: 10_000 },
};

/** Opens sessions in groups and gives their ids. */
export async function openSessions(origin: string, token: string, count: number): Promise<string[]> {
  const ids: string[] = [];
  const groupSize = 1000;
  for (let seed = 1; ids.length < count; seed++) {
    const response = await fetch(`${origin}/v1/sessions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify({ ...CREATE, seed, count: Math.min(groupSize, count - ids.length) }),
    });
    if (response.status !== 201) throw new Error(await response.text());
    const created = (await response.json()) as { session_id: string; sessions?: { session_id: string }[] };
    ids.push(...(created.sessions ?? [created]).map(session => session.session_id));
  }
  return ids;
}

const action = () => 1 + Math.floor(Math.random() * 4);
const isOver = (reply: string) => reply.includes('"terminated":true') || reply.includes('"truncated":true');

function frame(sessionId: string, over: boolean): string {
  return over
    ? `"op":"reset","session_id":"${sessionId}"`
    : `"op":"step","session_id":"${sessionId}","action":${action()}`;
}

/** Steps one session over its REST routes; with `keyed` each request has an idempotency key. */
export function restPlayer(sessionId: string, keyed = false): Player {
  const route = `/v1/sessions/${sessionId}`;
  let over = false;
  let key = 0;
  const player: Player = {
    path: '',
    next() {
      player.path = over ? `${route}/reset` : `${route}/step`;
      if (keyed) player.headers = `Idempotency-Key: ${++key}\r\n`;
      return over ? '{}' : `{"action":${action()}}`;
    },
    take(reply) {
      const steps = over ? 0 : 1;
      over = !over && isOver(reply);
      return steps;
    },
  };
  return player;
}

/** Steps one session in frames; with `keyed` each has a request key. */
export function framePlayer(sessionId: string, keyed = false): Player {
  let id = 0;
  let over = false;
  return {
    path: '',
    next: () => `{"id":${++id},${keyed ? `"request_key":"${id}",` : ''}${frame(sessionId, over)}}`,
    take(reply) {
      if (!reply.startsWith(`{"id":${id},"ok":true`)) throw new Error(`unexpected reply: ${reply}`);
      const steps = over ? 0 : 1;
      over = !over && isOver(reply);
      return steps;
    },
  };
}

/** Steps many sessions in turn, this many in a batch; `envelope` is what a frame adds. */
export function batchPlayer(sessionIds: readonly string[], batchSize: number, envelope: string): Player {
  const over = new Uint8Array(sessionIds.length);
  let first = 0;
  const inBatch = () => Array.from({ length: batchSize }, (_, i) => (first + i) % sessionIds.length);
  return {
    path: '/v1/batch',
    next: () =>
      `{${envelope}"items":[${inBatch()
        .map(i => `{${frame(sessionIds[i], over[i] === 1)}}`)
        .join(',')}]}`,
    take(reply) {
      const results = reply.split('{"ok":').slice(1);
      if (results.length !== batchSize) throw new Error(`unexpected reply: ${reply}`);
      let steps = 0;
      inBatch().forEach((session, i) => {
        if (!results[i].startsWith('true')) throw new Error(`unexpected reply: ${results[i]}`);
        if (over[session] === 0) steps++;
        over[session] = over[session] === 0 && isOver(results[i]) ? 1 : 0;
      });
      first = (first + batchSize) % sessionIds.length;
      return steps;
    },
  };
}

/** Asks the same again and again, counting each reply as a step. */
export function fixedPlayer(body: string): Player {
  return { path: '/', next: () => body, take: () => 1 };
}
