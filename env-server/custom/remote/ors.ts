import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { type ObservationPart, textOfParts } from '../../../shared/observation-parts.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { AnyEnvironment, Environment, EnvironmentSpec } from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/spaces.ts';
import { checkReward, InvalidAnswer, refused } from '../answer.ts';
import type { OrsDefinition } from '../definitions/definition.ts';
import { DEFAULT_MAX_STEPS, listsOf, stepsSetting } from '../definitions/definition-parts.ts';
import { invalidDefinition } from '../definitions/fault.ts';
import { detailOf, Endpoint } from './endpoint.ts';
import type { OwnedNetwork } from './network.ts';
import {
  instructionOf,
  isTextAction,
  namedTools,
  readTools,
  type ServiceTool,
  seedOf,
  serviceSpec,
  TEXT_ACTIONS,
  type ToolActions,
  toolActions,
} from './service.ts';

const MAX_TEXT_LENGTH = 2_000_000;
const DEFAULT_SPLIT = 'train';

/** The service's description of itself at registration. */
export interface OrsFacts extends JsonObject {
  readonly tools: readonly ServiceTool[];
  /** Number of tasks by split. */
  readonly splits: { readonly [name: string]: number };
}

interface State {
  readonly session: string;
  readonly text: string;
  readonly success: boolean;
}

/**
 * Asks the service for its tools and splits.
 * @throws Problem `invalid_request`, `remote_unavailable`, `remote_failed`
 */
export async function learnOrs(
  envId: string,
  definition: OrsDefinition,
  network: OwnedNetwork,
): Promise<OrsFacts> {
  const endpoint = new Endpoint(envId, definition, network);
  await endpoint.checkAddress();
  const service = new OrsService(endpoint, definition.env_name);
  const tools = await service.tools();
  const { action_tool: tool, split = DEFAULT_SPLIT } = definition;
  if (tool !== undefined && !tools.some(({ name }) => name === tool)) {
    throw invalidDefinition('/action_tool', `the service has no such tool; it has ${namesOf(tools)}`);
  }
  const splits = await service.splits();
  if (splits[split] === 0) throw invalidDefinition('/split', `the split ${split} has no tasks`);
  if (!Object.hasOwn(splits, split)) {
    throw invalidDefinition(
      '/split',
      `the service has no split ${split}; it has ${Object.keys(splits).join(', ')}`,
    );
  }
  return { tools, splits };
}

/**
 * A service that speaks the Open Reward Standard: a tool call is an action, its blocks are the observation, and a seed
 * selects the task. `finished` becomes `terminated`; an episode succeeds when it is finished with a reward above 0.
 * @throws Problem `invalid_request`
 */
export function orsEnvironment(
  envId: string,
  definition: OrsDefinition,
  { tools, splits }: OrsFacts,
  network: OwnedNetwork,
): AnyEnvironment {
  const endpoint = new Endpoint(envId, definition, network);
  const service = new OrsService(endpoint, definition.env_name);
  const { space, read, format } = actionsOf(definition, tools);
  if (read(definition.example_action) === undefined) {
    throw invalidDefinition('/example_action', `must be ${format}`);
  }
  const lists = listsOf(definition, action => read(action) !== undefined);
  const instruction = definition.instruction ?? instructionOf(tools);
  const environment: Environment<OrsConfig, State> = {
    spec: specOf(envId, definition, { splits, instruction, space }),

    describe: () => ({ instruction, actionFormat: format, ...lists.description }),
    ...(lists.references && { references: lists.references }),

    ...(space.type === 'Json' && { tools: namedTools(tools) }),

    async reset(config, rng: Random, { index }) {
      const count = splits[config.split];
      const task = typeof index === 'number' ? index : seedOf(rng) % count;
      const { session, prompt } = await service.open(config.split, task);
      return { session, text: prompt, success: false };
    },

    async step(state, action) {
      const call = read(action);
      if (call === undefined) return refused(state);
      try {
        const { text, reward, finished, metadata } = await service.call(state.session, call.name, call.input);
        const success = finished && reward > 0;
        const info = {
          success,
          action_is_valid: true,
          action_is_effective: true,
          ...(metadata && { metadata }),
        };
        return { state: { ...state, text, success }, reward, terminated: finished, info };
      } catch (error) {
        if (!(error instanceof RefusedCall)) throw error;
        // The player can learn from the service's message about the call.
        return refused({ ...state, text: error.message }, error.message);
      }
    },

    observe: ({ text }, format) => (format === 'structured' ? { text } : text),

    dispose: ({ session }) => service.close(session),
  };
  return environment as unknown as AnyEnvironment;
}

interface OrsConfig {
  readonly max_steps: number;
  readonly split: string;
}

function specOf(
  envId: string,
  definition: OrsDefinition,
  { splits, instruction, space }: Pick<OrsFacts, 'splits'> & { instruction: string; space: Space },
): EnvironmentSpec {
  const { split = DEFAULT_SPLIT, seed = true, max_episode_steps: maxSteps = DEFAULT_MAX_STEPS } = definition;
  const playable = Object.keys(splits).filter(name => splits[name] > 0);
  const title = definition.title ?? definition.env_name ?? envId;
  return serviceSpec(envId, { ...definition, title }, instruction, maxSteps, {
    configSchema: closed({
      max_steps: stepsSetting(maxSteps),
      split: Type.Union(
        playable.map(name => Type.Literal(name)),
        { default: split, description: 'Tasks of this split are played.' },
      ),
    }),
    optionsSchema: closed({
      index: Type.Optional(Type.Integer({ minimum: 0, description: 'Plays this task of the split.' })),
    }),
    observationSpace: { type: 'Text', maxLength: MAX_TEXT_LENGTH },
    actionSpace: space,
    exampleAction: definition.example_action,
    seedable: seed,
  });
}

const namesOf = (tools: readonly ServiceTool[]): string => tools.map(({ name }) => name).join(', ');

function actionsOf(
  { action_tool: tool, action_field: field }: OrsDefinition,
  tools: readonly ServiceTool[],
): ToolActions {
  if ((tool === undefined) !== (field === undefined)) {
    throw invalidDefinition('/action_tool', 'action_tool and action_field go together');
  }
  if (tool !== undefined && field !== undefined) {
    return {
      space: TEXT_ACTIONS,
      format: 'a text',
      read: action => (isTextAction(action) ? { name: tool, input: { [field]: action } } : undefined),
    };
  }
  return toolActions(tools);
}

/** Header that names the episode of a request. */
const SESSION_HEADER = 'x-session-id';
const TOO_MANY = 429;
const IMAGE_TYPE = /^image\/[a-z0-9.+-]{1,40}$/;
/** Most splits, because each needs one request to count. */
const MAX_SPLITS = 64;
const MAX_SPLIT_NAME_LENGTH = 128;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Result of a tool call. */
interface OrsOutput {
  /** Blocks as text, with pictures as `data:` URLs. */
  readonly text: string;
  readonly reward: number;
  readonly finished: boolean;
  readonly metadata: JsonObject | undefined;
}

/** The service rejects the call; nothing was done. */
class RefusedCall extends Error {}

/**
 * A service of the Open Reward Standard, route by route. After the standard's `specification/http-api` and
 * `src/ors/client` of its Python SDK.
 */
class OrsService {
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
    const events = await this.#endpoint.askText('create_session', {}, { accept: 'text/event-stream' });
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
