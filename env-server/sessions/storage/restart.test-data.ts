import type { Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { movedClock, silentApp } from '../../../test/app.test-data.ts';
import { testRegistry } from '../../../test/environments.test-data.ts';
import type { Settings } from '../../config/settings.ts';

/** A server on a data folder, within this process; it is closed with the test. */
export async function server(t: Test, data: string, clock = { now: 1e12 }, more: Partial<Settings> = {}) {
  const app = await silentApp(
    t,
    { data, checkpointSeconds: 0, ...more },
    { registry: testRegistry(), clock: movedClock(() => clock.now) },
  );
  const ask = async (...request: Parameters<typeof app.ask>) => {
    const { headers, text, body } = await app.ask(...request);
    return headers['content-type']?.toString().startsWith('application/jsonl') ? text : body;
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
