import { fileURLToPath } from 'node:url';
import OpenAI from 'openai';
import type { Test } from 'tap';
import type { LocalPolicyOptions } from '../policy/local-policy.ts';
import { createServeApp, type ServeAppOptions } from './app.ts';
import { Models } from './models.ts';

/** Models of the policy server's tests. */
export const GOLDEN = ['llama-tiny', 'qwen2-tiny', 'qwen3-tiny'] as const;
export const goldenFolder = (name: string) =>
  fileURLToPath(new URL(`../../test/golden/models/${name}`, import.meta.url));
export const ADMIN = 'admin-token';

export interface TestServer {
  readonly url: string;
  readonly models: Models;
  readonly client: OpenAI;
  /** Status, headers and JSON of a request. */
  request(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<TestReply>;
}

export interface TestReply {
  readonly status: number;
  readonly headers: Headers;
  /** JSON of any form, or text. */
  readonly body: ReturnType<typeof JSON.parse>;
}

/** A server of a folder on a free port; it ends with the test. */
export async function startServer(
  t: Pick<Test, 'teardown'>,
  folder: string,
  options: Partial<Omit<ServeAppOptions, 'models'>> & { readonly policy?: Partial<LocalPolicyOptions> } = {},
): Promise<TestServer> {
  const { policy, ...app } = options;
  const models = await Models.open({
    folder,
    name: 'base',
    maxAdapters: 3,
    policy: { workers: 2, maxOpenSequences: 64, ...policy },
  });
  const server = createServeApp({
    models,
    maxStreams: 64,
    logLevel: 'silent',
    host: '127.0.0.1',
    adminToken: ADMIN,
    ...app,
  });
  const url = await server.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(() => server.close());
  return {
    url,
    models,
    client: new OpenAI({ baseURL: `${url}/v1`, apiKey: app.token ?? 'none', maxRetries: 0 }),
    async request(method, path, body, headers = {}) {
      const reply = await fetch(url + path, {
        method,
        headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      });
      const text = await reply.text();
      const json = reply.headers.get('content-type')?.includes('json');
      return { status: reply.status, headers: reply.headers, body: json ? JSON.parse(text) : text };
    },
  };
}
