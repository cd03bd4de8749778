import { once } from 'node:events';
import { decode, encode } from '@msgpack/msgpack';
import { Agent, request } from 'undici';
import { WebSocket } from 'ws';
import { OPERATIONS } from '../../env-server/operations/table.ts';
import type { ProblemDocument } from '../../env-server/problems.ts';
import type { JsonObject } from '../../shared/json.ts';

/** An operation with its input, as frames and batch items have it. */
export interface Item extends JsonObject {
  readonly op: string;
}

/** A reply; `undefined` where the connection broke first, so that nobody knows what was done. */
export type Reply =
  | { readonly ok: true; readonly result: JsonObject }
  | { readonly ok: false; readonly error: ProblemDocument }
  | undefined;

/** One way to talk to the server, on separate connections. */
export interface Transport {
  readonly name: string;
  /** Asks for several things at once. */
  ask(items: readonly Item[]): Promise<Reply[]>;
  /** Cuts the connection, also while requests are in flight. */
  drop(): void;
  /** Close code of the last connection; 1006 where the server cut it, as it does when it hears nothing for long. */
  readonly closeCode?: number | undefined;
}

const routes = new Map(OPERATIONS.map(operation => [operation.name, operation]));

/** A reply that this server does not document. */
class Undocumented extends Error {}

function restTransport(origin: string): Transport {
  let agent = new Agent({ pipelining: 1 });
  return {
    name: 'rest',
    ask: items => Promise.all(items.map(item => askRoute(origin, agent, item))),
    drop() {
      void agent.destroy();
      agent = new Agent({ pipelining: 1 });
    },
  };
}

function batchTransport(origin: string): Transport {
  let agent = new Agent({ pipelining: 1 });
  return {
    name: 'batch',
    async ask(items) {
      const reply = await post(origin, agent, 'POST', '/v1/batch', { items: [...items] }, {});
      if (!reply) return items.map(() => undefined);
      if (!reply.ok) return items.map(() => reply);
      return reply.result.results as unknown as Reply[];
    },
    drop() {
      void agent.destroy();
      agent = new Agent({ pipelining: 1 });
    },
  };
}

function askRoute(origin: string, agent: Agent, { op, request_key: key, ...input }: Item): Promise<Reply> {
  const route = routes.get(op);
  if (!route) return post(origin, agent, 'POST', `/v1/sessions/none/${encodeURIComponent(op)}`, input, {});
  const rest: { [name: string]: unknown } = { ...input };
  const path = route.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(rest[name]);
    delete rest[name];
    return encodeURIComponent(value);
  });
  const headers: { [name: string]: string } = key === undefined ? {} : { 'idempotency-key': String(key) };
  if (route.method === 'POST' || route.method === 'PUT') {
    return post(origin, agent, route.method, path, rest as JsonObject, headers);
  }
  const query = new URLSearchParams(rest as { [name: string]: string }).toString();
  return post(origin, agent, route.method, query ? `${path}?${query}` : path, undefined, headers);
}

async function post(
  origin: string,
  agent: Agent,
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  path: string,
  body: JsonObject | undefined,
  headers: { readonly [name: string]: string },
): Promise<Reply> {
  let status: number;
  let type: string;
  let text: string;
  try {
    const response = await request(origin + path, {
      dispatcher: agent,
      method,
      headers: body === undefined ? headers : { ...headers, 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    });
    status = response.statusCode;
    type = String(response.headers['content-type'] ?? '');
    text = await response.body.text();
  } catch {
    return undefined;
  }
  const what = `${method} ${path}: ${status} ${type} ${text.slice(0, 200)}`;
  if (status === 204) return { ok: true, result: {} };
  if (status < 300 && type.startsWith('application/jsonl')) {
    const records = text.trimEnd().split('\n');
    return { ok: true, result: { records: records.map(line => JSON.parse(line)) } };
  }
  if (status < 300 && type.startsWith('text/plain')) return { ok: true, result: { text } };
  const isProblem = type.startsWith('application/problem+json');
  if (status < 300 ? !type.startsWith('application/json') : !isProblem) throw new Undocumented(what);
  const value = JSON.parse(text);
  return status < 300 ? { ok: true, result: value } : { ok: false, error: value };
}

/** Frames of any number of questions on one socket, opened again when it is gone. */
function socketTransport(origin: string, protocol: 'ragen.json' | 'ragen.msgpack'): Transport {
  const packed = protocol === 'ragen.msgpack';
  let socket: WebSocket | undefined;
  let frames = 0;
  let closeCode: number | undefined;
  let waiting = new Map<number, (reply: Reply) => void>();
  const lose = (lost: WebSocket, questions: typeof waiting) => {
    if (socket === lost) {
      socket = undefined;
      waiting = new Map();
    }
    for (const resolve of questions.values()) resolve(undefined);
    questions.clear();
  };
  const open = async (): Promise<WebSocket | undefined> => {
    const opening = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`, protocol);
    const questions = new Map<number, (reply: Reply) => void>();
    waiting = questions;
    socket = opening;
    opening.on('error', () => opening.terminate());
    opening.on('close', code => {
      closeCode = code;
      lose(opening, questions);
    });
    opening.on('message', data => {
      const reply = packed ? (decode(data as Buffer) as JsonObject) : JSON.parse(data.toString());
      questions.get(reply.id)?.(reply);
      questions.delete(reply.id);
    });
    await Promise.race([once(opening, 'open'), once(opening, 'close')]).catch(() => undefined);
    return opening.readyState === WebSocket.OPEN ? opening : undefined;
  };
  return {
    name: packed ? 'ws msgpack' : 'ws json',
    get closeCode() {
      return closeCode;
    },
    async ask(items) {
      const connected = socket?.readyState === WebSocket.OPEN ? socket : await open();
      if (!connected) return items.map(() => undefined);
      const questions = waiting;
      return Promise.all(
        items.map(item => {
          const frame = { id: ++frames, ...item };
          return new Promise<Reply>(resolve => {
            questions.set(frame.id, resolve);
            connected.send(packed ? encode(frame) : JSON.stringify(frame));
          });
        }),
      );
    },
    drop: () => socket?.terminate(),
  };
}

/** Every client has one of the four, in turn. */
export function transportFor(client: number, origin: string): Transport {
  switch (client % 4) {
    case 0:
      return socketTransport(origin, 'ragen.json');
    case 1:
      return restTransport(origin);
    case 2:
      return batchTransport(origin);
    default:
      return socketTransport(origin, 'ragen.msgpack');
  }
}
