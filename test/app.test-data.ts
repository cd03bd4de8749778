import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { type App, type AppParts, createApp } from '../env-server/app.ts';
import type { Settings } from '../env-server/config/settings.ts';
import type { ProblemDocument } from '../env-server/problems.ts';
import { ServerClock } from '../env-server/sessions/limits/server-clock.ts';
import type { Json } from '../shared/json.ts';
import { testRegistry, waiting } from './environments.test-data.ts';

/** A reply's body: any key may be looked up, and what is found compared. */
export interface Body {
  readonly [key: string]: Body;
}

export interface Reply {
  readonly status: number;
  readonly headers: { readonly [name: string]: unknown };
  readonly text: string;
  readonly body: Body;
}

export interface TestApp extends App {
  /** Moves the server's clock. */
  wait(seconds: number): void;
  ask(
    method: string,
    url: string,
    payload?: Json | string,
    headers?: { [name: string]: string },
  ): Promise<Reply>;
  /** Opens a session of `test/Counter-v0` and gives its id. */
  open(more?: { [key: string]: Json }): Promise<string>;
}

/** A server's clock that stands where a test puts it, in milliseconds since the epoch. */
export function movedClock(now: () => number): ServerClock {
  return new ServerClock({ wall: now, monotonic: now, uptime: now, boot: () => '' }, false);
}

/** A server without a log, asked without sockets, closed after the test. */
export async function silentApp(
  t: Pick<Test, 'teardown'>,
  settings: Partial<Settings> = {},
  parts?: AppParts,
) {
  const app = await createApp({ logLevel: 'silent', ...settings }, parts);
  t.teardown(() => app.server.close());
  /** The body is empty unless it is JSON. */
  const ask = async (method: 'GET' | 'POST' | 'DELETE', url: string, payload?: object, key?: string) => {
    const headers = key === undefined ? {} : { 'idempotency-key': key };
    const reply = await app.server.inject({ method, url, payload, headers });
    const isJson = /^application\/(problem\+)?json\b/.test(String(reply.headers['content-type']));
    const { statusCode: status, body: text } = reply;
    return { status, headers: reply.headers, text, body: isJson && text !== '' ? reply.json() : {} };
  };
  return { ...app, ask };
}

/** A server with the test environments and a fake clock, asked through real sockets, closed after the test. */
export async function testApp(t: Pick<Test, 'teardown'>, settings: Partial<Settings> = {}): Promise<TestApp> {
  let time = 1_000_000_000_000;
  const app = await createApp(
    { logLevel: 'silent', ...settings },
    { registry: testRegistry(), clock: movedClock(() => time) },
  );
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => {
    agent.destroy();
    // The next file of this process finds no steps that wait.
    for (const pass of waiting.splice(0)) pass();
    return app.server.close();
  });
  const ask: TestApp['ask'] = async (method, path, payload, headers = {}) => {
    if (!app.server.server.listening) await app.server.listen({ port: 0, host: '127.0.0.1' });
    const { port } = app.server.server.address() as AddressInfo;
    const sent = request({
      host: '127.0.0.1',
      port,
      agent,
      method,
      path,
      headers: payload === undefined ? headers : { 'content-type': 'application/json', ...headers },
    });
    sent.end(
      typeof payload === 'string' ? payload : payload === undefined ? undefined : JSON.stringify(payload),
    );
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk;
    const isJson = String(response.headers['content-type']).includes('json;');
    return {
      status: response.statusCode ?? 0,
      headers: response.headers,
      text,
      body: isJson && text !== '' ? JSON.parse(text) : {},
    };
  };
  return {
    ...app,
    wait(seconds) {
      time += seconds * 1000;
      app.sessions.sweep();
    },
    ask,
    async open(more = {}) {
      const { body } = await ask('POST', '/v1/sessions', { env_id: 'test/Counter-v0', ...more });
      return String(body.session_id);
    },
  };
}

/** Asserts that a reply is a problem of this code: a whole document with the right type and status. */
export function isProblem(t: Pick<Test, 'match'>, reply: Reply, code: ProblemDocument['code']): void {
  t.match(String(reply.headers['content-type']), /^application\/problem\+json/);
  t.match(reply.body, {
    type: `urn:ragen:problem:${code}`,
    status: reply.status,
    code,
    title: String,
    detail: String,
    retryable: Boolean,
    trace_id: /^[0-9a-f]{32}$/,
  });
}
