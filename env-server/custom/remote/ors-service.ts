import type { Json, JsonObject } from '../../../shared/json.ts';
import { type ObservationPart, textOfParts } from '../../../shared/observation-parts.ts';
import { checkReward, InvalidAnswer, isObject } from '../answer.ts';
import { detailOf, type Endpoint } from './endpoint.ts';
import { readTools, type ServiceTool } from './service.ts';

/** Header that names the episode of a request. */
const SESSION_HEADER = 'x-session-id';
const TOO_MANY = 429;
const IMAGE_TYPE = /^image\/[a-z0-9.+-]{1,40}$/;
/** Most splits, because each needs one request to count. */
const MAX_SPLITS = 64;
const MAX_SPLIT_NAME_LENGTH = 128;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Result of a tool call. */
export interface OrsOutput {
  /** Blocks as text, with pictures as `data:` URLs. */
  readonly text: string;
  readonly reward: number;
  readonly finished: boolean;
  readonly metadata: JsonObject | undefined;
}

/** The service rejects the call; nothing was done. */
export class RefusedCall extends Error {}

/**
 * A service of the Open Reward Standard, route by route. After the standard's `specification/http-api` and
 * `src/ors/client` of its Python SDK.
 */
export class OrsService {
  readonly #endpoint: Endpoint;
  /** Path of the environment, with its final slash; empty for a service with paths that name no environment. */
  readonly #path: string;
  readonly #envName: string | undefined;

  constructor(endpoint: Endpoint, envName: string | undefined) {
    this.#endpoint = endpoint;
    this.#envName = envName;
    this.#path = envName === undefined ? '' : `${encodeURIComponent(envName)}/`;
  }

  /** @throws Problem */
  async tools(): Promise<ServiceTool[]> {
    const answer = await this.#endpoint.askObject('GET', `${this.#path}tools`);
    return this.#endpoint.reading(() => readTools(answer.tools));
  }

  /**
   * Names of the splits with their numbers of tasks.
   * @throws Problem
   */
  async splits(): Promise<{ [name: string]: number }> {
    const { status, body } = await this.#endpoint.ask('GET', `${this.#path}splits`);
    if (status >= 400) throw this.#endpoint.failed(`answered GET ${this.#path}splits with ${status}`);
    const names = this.#endpoint.reading(() => readSplits(body));
    const counts: { [name: string]: number } = {};
    for (const split of names) {
      const answer = await this.#endpoint.askObject(
        'POST',
        `${this.#path}num_tasks`,
        { split },
        { repeatable: true },
      );
      counts[split] = this.#endpoint.reading(() => readCount(answer.num_tasks));
    }
    return counts;
  }

  /**
   * Begins the episode of a task.
   * @returns the session's id, and the prompt as text
   * @throws Problem
   */
  async open(split: string, index: number): Promise<{ session: string; prompt: string }> {
    const events = await this.#endpoint.askText(
      'POST',
      'create_session',
      {},
      { accept: 'text/event-stream' },
    );
    const session = this.#endpoint.reading(() => readSession(events, this.#endpoint));
    const headers = { [SESSION_HEADER]: session };
    try {
      const task = { ...(this.#envName !== undefined && { env_name: this.#envName }), split, index };
      await this.#create(task, headers);
      const { status, body } = await this.#endpoint.ask('GET', `${this.#path}prompt`, undefined, { headers });
      if (status >= 400) throw this.#endpoint.failed(`answered GET ${this.#path}prompt with ${status}`);
      return { session, prompt: this.#endpoint.reading(() => textOfBlocks(body)) };
    } catch (error) {
      await this.close(session).catch(() => undefined);
      throw error;
    }
  }

  async #create(task: JsonObject, headers: { [name: string]: string }): Promise<void> {
    const { status, body } = await this.#endpoint.ask('POST', 'create', task, { headers });
    if (status < 400) return;
    const said = `${status}: ${detailOf(body) ?? 'no reason is given'}`;
    if (status !== TOO_MANY) throw this.#endpoint.failed(`answered POST create with ${said}`);
    throw this.#endpoint.unavailable(`is full (${said})`);
  }

  /** @throws Problem, RefusedCall */
  async call(session: string, name: string, input: JsonObject): Promise<OrsOutput> {
    const events = await this.#endpoint.askText(
      'POST',
      `${this.#path}call`,
      { name, input },
      { accept: 'text/event-stream', headers: { [SESSION_HEADER]: session } },
    );
    return this.#endpoint.reading(() => readOutput(readEvents(events).result, this.#endpoint));
  }

  /** @throws Problem */
  async close(session: string): Promise<void> {
    const headers = { [SESSION_HEADER]: session };
    await this.#endpoint.ask('POST', 'delete', {}, { headers });
    await this.#endpoint.ask('POST', 'delete_session', {}, { headers });
  }
}

function readSplits(given: unknown): string[] {
  if (!Array.isArray(given) || given.length === 0 || given.length > MAX_SPLITS) {
    throw new InvalidAnswer(`splits must be a list of 1 to ${MAX_SPLITS} splits`);
  }
  return given.map((split, i) => {
    const name = isObject(split) ? split.name : split;
    if (typeof name === 'string' && name !== '' && name.length <= MAX_SPLIT_NAME_LENGTH) return name;
    throw new InvalidAnswer(`splits/${i} must have a name of 1 to ${MAX_SPLIT_NAME_LENGTH} characters`);
  });
}

function readCount(given: unknown): number {
  if (typeof given === 'number' && Number.isSafeInteger(given) && given >= 0) return given;
  throw new InvalidAnswer('num_tasks must be a whole number, 0 or more');
}

/** The session id: the data of `task_id`, or `sid` of the result. */
function readSession(text: string, endpoint: Endpoint): string {
  const { taskId, result } = readEvents(text);
  const reply = result === '' ? undefined : endpoint.readJson(result, 'POST create_session');
  const id = isObject(reply) && typeof reply.sid === 'string' ? reply.sid : taskId;
  if (id !== undefined && /^[\x21-\x7e]{1,256}$/.test(id)) return id;
  throw new InvalidAnswer('create_session must give the id of a session');
}

/** @throws RefusedCall, InvalidAnswer */
function readOutput(text: string, endpoint: Endpoint): OrsOutput {
  const answer = endpoint.readJson(text, 'POST call');
  if (!isObject(answer)) throw new InvalidAnswer('the result of a call must be an object');
  if (answer.ok === false) {
    throw new RefusedCall(typeof answer.error === 'string' ? answer.error : 'the call was refused');
  }
  const { output } = answer;
  if (!isObject(output)) throw new InvalidAnswer('the result of a call must have output or error');
  const { reward, finished = false, metadata } = output;
  if (typeof finished !== 'boolean') throw new InvalidAnswer('finished must be a boolean');
  const paid = reward ?? 0;
  checkReward(paid);
  return {
    text: textOfBlocks(output.blocks),
    reward: paid,
    finished,
    metadata: isObject(metadata) ? metadata : undefined,
  };
}

/** Blocks as text, pictures as `data:` URLs. @throws InvalidAnswer */
function textOfBlocks(given: unknown): string {
  if (!Array.isArray(given)) throw new InvalidAnswer('blocks must be a list of texts and images');
  return textOfParts(given.map(partOf));
}

function partOf(block: Json, i: number): ObservationPart {
  if (!isObject(block)) throw new InvalidAnswer(`blocks/${i} must be an object`);
  const { type, text, data, mimeType: mime } = block;
  if (type === 'text' && typeof text === 'string') return { type, text };
  if (type === 'image' && typeof data === 'string' && typeof mime === 'string') {
    if (IMAGE_TYPE.test(mime) && BASE64.test(data)) return { type, mime, data };
    throw new InvalidAnswer(`blocks/${i} must be an image in base64 with a mimeType such as image/png`);
  }
  throw new InvalidAnswer(`blocks/${i} must be a string or an image`);
}

/** Longest part of a service's message that is repeated. */
const MAX_SHOWN_LENGTH = 300;

/** Result of an event stream of the Open Reward Standard. */
interface StreamedResult {
  /** Data of `task_id`. */
  readonly taskId: string | undefined;
  /** Data of `chunk` and `end`, joined. */
  readonly result: string;
}

/**
 * Parses a complete text of server-sent events.
 * @throws InvalidAnswer for the event `error`, and where the end is missing
 */
function readEvents(text: string): StreamedResult {
  let taskId: string | undefined;
  let result = '';
  for (const { name, data } of eventsOf(text)) {
    if (name === 'task_id') taskId = data.trim();
    else if (name === 'chunk') result += data;
    else if (name === 'end') return { taskId, result: result + data };
    else if (name === 'error') throw new InvalidAnswer(`it failed: ${data.slice(0, MAX_SHOWN_LENGTH)}`);
  }
  throw new InvalidAnswer('the stream of events has no end');
}

/** Events after the HTML standard, section 9.2.6; comments and unknown fields are skipped. */
function* eventsOf(text: string): Generator<{ name: string; data: string }> {
  let name = 'message';
  let data: string[] = [];
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (line === '') {
      if (data.length > 0) yield { name, data: data.join('\n') };
      name = 'message';
      data = [];
      continue;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') name = value;
    else if (field === 'data') data.push(value);
  }
}
