import WebSocket from 'ws';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { Problem } from '../../problems.ts';
import { checkReward, InvalidAnswer } from '../answer.ts';
import { JsonOutOfBounds, readAnswer } from '../json-limits.ts';
import { detailOf, type Endpoint, excerpt } from './endpoint.ts';
import { type OpenEnvCode, type OpenEnvReply, SESSION_HEADER } from './openenv-protocol.ts';

/** Sends an episode's resets and steps to the service. */
export interface OpenEnvTransport {
  /** @throws Problem */
  reset(session: string, request: JsonObject): Promise<OpenEnvReply>;
  /** @throws Problem, InvalidAction */
  step(session: string, action: JsonObject): Promise<OpenEnvReply>;
  close(session: string): Promise<void>;
}

/** The service does not know the action; nothing was done. */
export class InvalidAction extends Error {}

/** @throws BadAnswer */
function readReply(data: unknown): OpenEnvReply {
  if (!isObject(data)) throw new InvalidAnswer('it must be an object with observation, reward and done');
  const { observation, reward, done = false } = data;
  if (!isObject(observation)) throw new InvalidAnswer('observation must be an object');
  if (typeof done !== 'boolean') throw new InvalidAnswer('done must be a boolean');
  const paid = reward ?? 0;
  checkReward(paid);
  return { observation, reward: paid, done };
}

/** `POST /reset` and `/step`; the header `X-Session-Id` identifies the session. */
export class HttpTransport implements OpenEnvTransport {
  readonly #endpoint: Endpoint;

  constructor(endpoint: Endpoint) {
    this.#endpoint = endpoint;
  }

  async reset(session: string, request: JsonObject): Promise<OpenEnvReply> {
    const body = await this.#endpoint.askObject('POST', 'reset', request, {
      headers: { [SESSION_HEADER]: session },
    });
    return this.#endpoint.reading(() => readReply(body));
  }

  async step(session: string, action: JsonObject): Promise<OpenEnvReply> {
    const { status, body } = await this.#endpoint.ask(
      'POST',
      'step',
      { action },
      { headers: { [SESSION_HEADER]: session } },
    );
    if (status === 422) throw new InvalidAction(detailOf(body) ?? 'not an action');
    if (status >= 400) throw this.#endpoint.failed(`answered POST step with ${status}`);
    return this.#endpoint.reading(() => readReply(body));
  }

  /**
   * Number of steps in the service's state of a session; undefined where it shows none.
   * @throws Problem
   */
  async stepCount(session: string): Promise<number | undefined> {
    const { body } = await this.#endpoint.ask('GET', 'state', undefined, {
      headers: { [SESSION_HEADER]: session },
    });
    return isObject(body) && typeof body.step_count === 'number' ? body.step_count : undefined;
  }

  /** The protocol has no such message over HTTP; the service forgets the session by itself. */
  async close(): Promise<void> {}
}

/** One WebSocket for each episode; replies come in request order. */
export class WebSocketTransport implements OpenEnvTransport {
  readonly #endpoint: Endpoint;
  readonly #lines = new Map<string, Line>();

  constructor(endpoint: Endpoint) {
    this.#endpoint = endpoint;
  }

  async reset(session: string, request: JsonObject): Promise<OpenEnvReply> {
    const line = await this.#endpoint.attempt(false, signal => Line.open(this.#endpoint, signal));
    this.#lines.set(session, line);
    line.onClose = () => this.#lines.delete(session);
    try {
      return await this.#ask(line, { type: 'reset', data: request });
    } catch (error) {
      line.close();
      throw error;
    }
  }

  step(session: string, action: JsonObject): Promise<OpenEnvReply> {
    const line = this.#lines.get(session);
    if (!line) throw this.#endpoint.failed('has closed the connection of this episode');
    return this.#ask(line, { type: 'step', data: action });
  }

  async close(session: string): Promise<void> {
    const line = this.#lines.get(session);
    if (!line) return;
    line.send({ type: 'close' });
    line.close();
  }

  async #ask(line: Line, message: JsonObject): Promise<OpenEnvReply> {
    const reply = await line.ask(message);
    return this.#endpoint.reading(() => {
      if (reply.type === 'error')
        throw this.#error(isObject(reply.data) ? reply.data : {}, message.type === 'step');
      if (reply.type !== 'observation') throw new InvalidAnswer(`its type is ${JSON.stringify(reply.type)}`);
      return readReply(reply.data);
    });
  }

  #error({ code, message }: JsonObject, ofStep: boolean): Error {
    const said = `${excerpt(code)}: ${excerpt(message)}`;
    const isCode = (wanted: OpenEnvCode) => code === wanted;
    if (isCode('VALIDATION_ERROR') && ofStep) return new InvalidAction(said);
    if (isCode('CAPACITY_REACHED')) {
      return this.#endpoint.unavailable(`is full (${said})`);
    }
    return this.#endpoint.failed(`answered ${said}`);
  }
}

/** A connection with at most one request in progress, because the session sends one at a time. */
class Line {
  readonly #endpoint: Endpoint;
  readonly #socket: WebSocket;
  #waiting: { resolve: (reply: JsonObject) => void; reject: (error: Error) => void } | undefined;
  /** Error that the service sent before the first request, when it accepts no episode. */
  #unasked: JsonObject | undefined;
  onClose: () => void = () => undefined;

  private constructor(endpoint: Endpoint, socket: WebSocket) {
    this.#endpoint = endpoint;
    this.#socket = socket;
    socket.on('message', data => this.#receive(String(data)));
    socket.on('close', () => this.#end('closed the connection'));
    socket.on('error', error => this.#end(`broke the connection: ${error.message}`));
  }

  static async open(endpoint: Endpoint, signal: AbortSignal): Promise<Line> {
    const url = endpoint.url('ws');
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const { guard } = endpoint.network;
    guard.checkUrl(url);
    if (!(await endpoint.sockets.take(0))) {
      throw new Problem(
        'remote_unavailable',
        `${endpoint.name} has no place for another WebSocket: too many episodes of services are open`,
      );
    }
    const socket = new WebSocket(url, {
      headers: { ...endpoint.headers },
      lookup: guard.lookup,
      handshakeTimeout: endpoint.timeoutMs,
      maxPayload: endpoint.network.longestReplyBytes,
      perMessageDeflate: false,
      followRedirects: false,
    });
    socket.once('close', () => endpoint.sockets.release());
    return new Promise((resolve, reject) => {
      const abort = () => socket.terminate();
      signal.addEventListener('abort', abort);
      socket.on('error', reject);
      socket.once('open', () => {
        signal.removeEventListener('abort', abort);
        resolve(new Line(endpoint, socket));
      });
    });
  }

  /** After a timeout the connection is closed: a late reply would be taken for the next one. */
  async ask(message: JsonObject): Promise<JsonObject> {
    if (this.#unasked) return this.#unasked;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#end(`did not answer within ${this.#endpoint.timeoutMs} ms`),
        this.#endpoint.timeoutMs,
      );
      const done = () => {
        clearTimeout(timer);
        this.#waiting = undefined;
      };
      this.#waiting = {
        resolve: reply => {
          done();
          resolve(reply);
        },
        reject: error => {
          done();
          reject(error);
        },
      };
      this.send(message);
    });
  }

  send(message: JsonObject): void {
    if (this.#socket.readyState !== WebSocket.OPEN) this.#end('closed the connection');
    else this.#socket.send(JSON.stringify(message));
  }

  close(): void {
    this.#socket.close();
    this.#end('was left');
  }

  #receive(text: string): void {
    let reply: unknown;
    try {
      reply = readAnswer(text, this.#endpoint.network.answerLimits);
    } catch (error) {
      if (error instanceof JsonOutOfBounds) {
        this.#end(`sent an answer that cannot be taken: ${error.message}`);
        return;
      }
    }
    if (isObject(reply) && this.#waiting) this.#waiting.resolve(reply);
    else if (isObject(reply) && reply.type === 'error' && !this.#unasked) this.#unasked = reply;
    else this.#end('sent something that is not a reply');
  }

  #end(why: string): void {
    this.#waiting?.reject(this.#endpoint.failed(why));
    if (this.#socket.readyState === WebSocket.OPEN && why !== 'was left') this.#socket.terminate();
    this.onClose();
  }
}
