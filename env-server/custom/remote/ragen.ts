import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { Type } from '../../../shared/schema/type.ts';
import type {
  AnyEnvironment,
  Description,
  Ends,
  Environment,
  EnvironmentSpec,
} from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/spaces.ts';
import type { Problem } from '../../problems.ts';
import { newId } from '../../sessions/ids.ts';
import { type AnsweredObservation, InvalidAnswer, readOutcome, readSeen, refused } from '../answer.ts';
import type { RagenDefinition } from '../definitions/definition.ts';
import { MAX_ACTIONS, MAX_STEPS } from '../definitions/definition-parts.ts';
import { invalidDefinition } from '../definitions/fault.ts';
import { afterColon, Endpoint } from './endpoint.ts';
import type { OwnedNetwork } from './network.ts';
import { seedOf, serviceSpec } from './service.ts';

/** The other server's description of its environment at registration. */
export interface RagenFacts extends JsonObject {
  readonly document: JsonObject;
}

interface State extends AnsweredObservation {
  /** Id of the session on the other server. */
  readonly session: string;
  readonly step: number;
}

/**
 * Asks the other server about the environment under the configuration and wrappers of the definition.
 * @throws Problem `invalid_request`, `remote_unavailable`, `remote_failed`
 */
export async function learnRagen(
  envId: string,
  definition: RagenDefinition,
  network: OwnedNetwork,
): Promise<RagenFacts> {
  const endpoint = new Endpoint(envId, definition, network);
  await endpoint.checkAddress();
  const { config = {}, wrappers = [] } = definition;
  const route = `v1/envs/${encodeURIComponent(definition.env_id)}/describe`;
  const { status, body } = await endpoint.ask(
    'POST',
    route,
    { config, wrappers: wrappers as Json },
    { repeatable: true },
  );
  if (status >= 400) {
    throw invalidDefinition('', `the other server answered ${route} with ${status}${afterColon(body)}`);
  }
  if (!isObject(body)) throw endpoint.failed('did not describe the environment');
  return { document: body };
}

/**
 * An environment of another ragen server. It plays under the configuration it was registered with, which the other
 * server has described. A session there lives as long as the episode here.
 * @throws Problem `invalid_request`
 */
export function ragenEnvironment(
  envId: string,
  definition: RagenDefinition,
  { document }: RagenFacts,
  network: OwnedNetwork,
): AnyEnvironment {
  const endpoint = new Endpoint(envId, definition, network);
  const about = endpoint.reading(() => readDocument(document));
  const { config = {}, wrappers = [] } = definition;

  const environment: Environment<JsonObject, State> = {
    spec: specOf(envId, definition, about),

    describe: () => about.description,

    async reset(_config, rng, options) {
      const seed = about.seedable ? { seed: seedOf(rng) } : {};
      const request = { env_id: definition.env_id, config, wrappers: wrappers as Json, options, ...seed };
      const answer = await endpoint.askObject('POST', 'v1/sessions', request, {
        repeatable: true,
        headers: { 'idempotency-key': newId('k') },
      });
      return endpoint.reading(() => {
        if (typeof answer.session_id !== 'string') throw new InvalidAnswer('session_id is missing');
        return { ...readSeen(answer.observation), session: answer.session_id, step: 0 };
      });
    },

    async step(state, action) {
      const step = state.step + 1;
      const route = `v1/sessions/${encodeURIComponent(state.session)}/step`;
      const { status, body } = await endpoint.ask(
        'POST',
        route,
        { action, expected_step: step },
        { repeatable: true, headers: { 'idempotency-key': `${state.session}.${step}` } },
      );
      if (isObject(body) && body.code === 'invalid_action') return refused(state);
      if (status !== 200) throw rejected(endpoint, status, body);
      if (!isObject(body)) throw endpoint.failed('must answer a step with a JSON object');
      return endpoint.reading(() => ({
        ...readOutcome(body, true),
        state: { ...readSeen(body.observation), session: state.session, step },
      }));
    },

    observe: ({ text, structured }, format) => (format === 'structured' ? (structured ?? { text }) : text),

    async dispose({ session }) {
      await endpoint.ask('DELETE', `v1/sessions/${encodeURIComponent(session)}`, undefined, {
        repeatable: true,
      });
    },
  };
  return environment as unknown as AnyEnvironment;
}

function specOf(envId: string, definition: RagenDefinition, about: Document): EnvironmentSpec {
  const titled = { ...definition, title: definition.title ?? about.title, ends: about.ends };
  return serviceSpec(envId, titled, about.text ?? about.title, about.maxSteps, {
    ...(about.takesOptions && { optionsSchema: Type.Record(Type.String(), Type.Unknown()) }),
    observationSpace: { type: 'Text', maxLength: about.longestText },
    actionSpace: about.actionSpace,
    rewardRange: about.rewardRange,
    exampleAction: about.exampleAction,
    seedable: about.seedable,
  });
}

/** Problem for a request that the other server rejected; retryable where that server says that nothing was done. */
function rejected(endpoint: Endpoint, status: number, body: Json): Problem {
  const { retryable, retry_after_s } = isObject(body) ? body : {};
  const what = `answered a step with ${status}${afterColon(body)}`;
  if (retryable !== true) return endpoint.failed(what);
  const isGiven = typeof retry_after_s === 'number' && retry_after_s > 0;
  return endpoint.unavailable(what, isGiven ? Math.min(retry_after_s, MAX_RETRY_AFTER_S) : undefined);
}

interface Document {
  readonly title: string;
  readonly text: string | undefined;
  readonly description: Description;
  readonly actionSpace: Space;
  readonly exampleAction: Json;
  readonly longestText: number;
  readonly rewardRange: readonly [number, number];
  readonly maxSteps: number;
  readonly seedable: boolean;
  readonly takesOptions: boolean;
  readonly ends: Ends;
}

const DEFAULT_MAX_TEXT_LENGTH = 1_000_000;
const ACTION_SPACE = 'action_space.gymnasium';
const MAX_TITLE_LENGTH = 200;
/** Longest pause that a service may ask the clients of this server for. */
const MAX_RETRY_AFTER_S = 3600;
const MAX_LEGEND_ENTRIES = 1000;
const MAX_ENDS = 100;
/** Far beyond any text, and sums of such lengths stay exact. */
const MAX_NUMBER = 2 ** 40;

/** @throws InvalidAnswer */
function readDocument(document: JsonObject): Document {
  const text = (key: string): string => {
    const value = document[key];
    if (typeof value !== 'string' || value === '') throw new InvalidAnswer(`its document has no ${key}`);
    return value;
  };
  const {
    reward_range: range,
    actions,
    action_format,
    legend,
    vocabulary,
    example_actions: examples,
  } = document;
  const title = text('title');
  if (title.length > MAX_TITLE_LENGTH) {
    throw new InvalidAnswer(`title must have at most ${MAX_TITLE_LENGTH} characters, got ${title.length}`);
  }
  const maxSteps = readInteger(document.max_episode_steps, 'max_episode_steps', 1, MAX_STEPS);
  if (maxSteps === undefined) throw new InvalidAnswer('its document has no max_episode_steps');
  const names = isTexts(actions) ? actions : undefined;
  const { capabilities, options_schema, observation_space } = document;
  const options =
    isObject(options_schema) && isObject(options_schema.properties) ? options_schema.properties : {};
  return {
    title,
    text: typeof document.description === 'string' ? document.description : undefined,
    description: {
      instruction: text('instruction'),
      ...(names && { actions: names }),
      ...(typeof action_format === 'string' && { actionFormat: action_format }),
      ...(legend !== undefined && { legend: readLegend(legend) }),
      ...(isTexts(vocabulary) && { vocabulary }),
      ...(Array.isArray(examples) && { exampleActions: examples }),
    },
    actionSpace: actionSpaceOf(document.action_space, names),
    exampleAction: document.example_action ?? null,
    longestText: longestTextOf(observation_space, 'observation_space'),
    rewardRange: [bound(range, 0, Number.NEGATIVE_INFINITY), bound(range, 1, Number.POSITIVE_INFINITY)],
    maxSteps,
    seedable: isObject(capabilities) && capabilities.seed === true,
    takesOptions: Object.keys(options).length > 0,
    ends: readEnds(document.ends),
  };
}

/** @throws InvalidAnswer */
function actionSpaceOf(space: Json | undefined, names: readonly string[] | undefined): Space {
  const { type, n: count, start: first } = gymnasiumOf(space);
  if (type === 'Discrete') {
    const n = readInteger(count, `${ACTION_SPACE}.n`, 1, MAX_ACTIONS);
    if (n === undefined) throw new InvalidAnswer('its action space has no n');
    const start = readInteger(first, `${ACTION_SPACE}.start`, -MAX_NUMBER, MAX_NUMBER) ?? 0;
    return { type: 'Discrete', n, start, ...(names?.length === n && { names }) };
  }
  if (type === 'Text') return { type: 'Text', maxLength: longestTextOf(space, 'action_space') };
  // The other server checks the rest by its own schema.
  return { type: 'Json', schema: {} };
}

/** @throws InvalidAnswer */
function longestTextOf(space: Json | undefined, name: string): number {
  const { max_length: length } = gymnasiumOf(space);
  return readInteger(length, `${name}.gymnasium.max_length`, 1, MAX_NUMBER) ?? DEFAULT_MAX_TEXT_LENGTH;
}

function gymnasiumOf(space: Json | undefined): JsonObject {
  return isObject(space) && isObject(space.gymnasium) ? space.gymnasium : {};
}

/** @throws InvalidAnswer unless the value is absent or a whole number within the bounds */
function readInteger(
  value: Json | undefined,
  field: string,
  least: number,
  most: number,
): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value;
  throw new InvalidAnswer(`${field} must be a whole number from ${least} to ${most}`);
}

/** Ends of an older server are unknown. */
function readEnds(ends: Json | undefined): Ends {
  if (!isObject(ends)) return {};
  const known = Object.entries(ends).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  return Object.fromEntries(known.slice(0, MAX_ENDS));
}

/** @throws InvalidAnswer */
function readLegend(legend: Json): Description['legend'] {
  if (!Array.isArray(legend) || legend.length > MAX_LEGEND_ENTRIES) {
    throw new InvalidAnswer(`legend must be a list of at most ${MAX_LEGEND_ENTRIES} entries`);
  }
  return (legend as readonly Json[]).map((entry, i) => {
    if (!isObject(entry) || typeof entry.symbol !== 'string' || typeof entry.meaning !== 'string') {
      throw new InvalidAnswer(`legend/${i} must be an object with a symbol and a meaning`);
    }
    return { symbol: entry.symbol, meaning: entry.meaning };
  });
}

function bound(range: Json | undefined, index: number, unbounded: number): number {
  const value = Array.isArray(range) ? (range as readonly Json[])[index] : undefined;
  return typeof value === 'number' ? value : unbounded;
}

function isTexts(value: Json | undefined): value is readonly string[] {
  return Array.isArray(value) && value.every(item => typeof item === 'string');
}
