import type { Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { testRegistry } from '../../../test/environments.test-data.ts';
import { createApp } from '../../app.ts';
import type { Settings } from '../../config/settings.ts';

/** A server on a data folder, within this process; it is closed with the test. */
export async function server(t: Test, data: string, clock = { now: 1e12 }, more: Partial<Settings> = {}) {
  const app = await createApp(
    { logLevel: 'silent', data, checkpointSeconds: 0, ...more },
    { registry: testRegistry(), now: () => clock.now },
  );
  t.teardown(() => app.server.close());
  const ask = async (method: 'GET' | 'POST', url: string, payload?: object, key?: string) => {
    const headers = key === undefined ? {} : { 'idempotency-key': key };
    const reply = await app.server.inject({ method, url, payload, headers });
    return reply.headers['content-type']?.toString().startsWith('application/jsonl')
      ? reply.body
      : reply.json();
  };
  return { ...app, ask };
}

type Ask = Awaited<ReturnType<typeof server>>['ask'];

/** The replies to steps, less what differs from request to request. */
export async function play(ask: Ask, id: string, actions: readonly Json[]) {
  const replies: JsonObject[] = [];
  for (const action of actions) {
    const { trace_id: _trace, ...reply } = await ask('POST', `/v1/sessions/${id}/step`, { action });
    replies.push(reply);
  }
  return replies;
}
