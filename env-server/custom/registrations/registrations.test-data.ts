import { pino } from 'pino';
import type { Test } from 'tap';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Reply } from '../../../test/app.test-data.ts';
import { type AppParts, createApp } from '../../app.ts';
import type { Settings } from '../../config/settings.ts';
import { createRegistry } from '../../environments/registry.ts';
import { EXAMPLES } from '../examples.ts';

export const tabular = EXAMPLES.tabular.value as { env_id: string; definition: JsonObject };
export const script = EXAMPLES.script.value as { env_id: string; definition: JsonObject };
export const composed = EXAMPLES.composed.value as { env_id: string; definition: JsonObject };

export const at = (envId: string, more = '') => `/v1/envs/${encodeURIComponent(envId)}${more}`;

/** A server that logs to `lines`, with the requests of a client. */
export async function server(
  t: Test,
  settings: Partial<Settings> = {},
  lines: string[] = [],
  storage?: AppParts['storage'],
) {
  const log = pino({ level: 'info' }, { write: (line: string) => lines.push(line) });
  const app = await createApp(settings, { registry: createRegistry(), log, storage });
  let open = true;
  const close = async () => {
    if (open) await app.server.close();
    open = false;
  };
  t.teardown(close);
  const ask = async (method: string, url: string, payload?: Json, token?: string): Promise<Reply> => {
    const reply = await app.server.inject({
      method: method as 'GET',
      url,
      headers: {
        ...(payload !== undefined && { 'content-type': 'application/json' }),
        ...(token && { authorization: `Bearer ${token}` }),
      },
      ...(payload !== undefined && { payload: JSON.stringify(payload) }),
    });
    const text = reply.body;
    const isJson = String(reply.headers['content-type']).includes('json;') && text !== '';
    return { status: reply.statusCode, headers: reply.headers, text, body: isJson ? JSON.parse(text) : {} };
  };
  return { ...app, ask, close };
}
