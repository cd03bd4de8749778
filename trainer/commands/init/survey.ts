import { type Json, type JsonObject, parseJson } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import { similar } from '../../../shared/text.ts';
import type { Schemas } from '../../client/operations.ts';
import { ServerProblem } from '../../client/retry.ts';
import type { EnvServer } from '../../client/server.ts';
import { type OpenEpisode, rollout } from '../../client/vector-rollout.ts';
import { responseJson } from '../../generation/json/response-grammar.ts';
import { drawnActionsOf, writtenAction } from '../../rollout/described-tag.ts';
import { drawnActions, hasUnboundedNumbers } from '../../rollout/drawn-actions.ts';
import { costsTheEpisode } from '../../rollout/environment-session.ts';
import { observationText } from '../../rollout/session-requests.ts';

/** Episodes of a survey, and the seed of the first. */
export const SURVEY_EPISODES = 64;
const FIRST_SEED = 2_000_000;
/** Steps after which a survey leaves an episode, and milliseconds after which it leaves all open ones. */
const MAX_SURVEY_STEPS = 64;
const MAX_SURVEY_MS = 120_000;
/** Characters of observations that a survey keeps; after them only the longest one. */
const KEPT_CHARACTERS = 2 ** 23;
/** Environments that an error lists. */
const MAX_NAMED = 8;
const RANDOM = 'random';
const SUCCESS = 'success';

type EnvironmentDocument = Schemas['Environment'];

/**
 * The source of random actions: the valid actions that states list, else the named actions, the example actions, the
 * reference `random`, JSON actions drawn from their schema, or the only example action.
 */
type Player = 'names' | 'examples' | 'valid' | 'reference' | 'drawn' | 'example';

/** Measurements of random play in an environment. */
export interface Survey {
  readonly document: EnvironmentDocument;
  readonly player: Player;
  /** Steps after which episodes were left. */
  readonly stepLimit: number;
  /** Ended episodes, and episodes left at the limit; the others ran out of time. */
  readonly episodes: readonly SurveyedEpisode[];
  /** Least reward of a step. */
  readonly leastReward: number;
  /** Reward of the step that costs least without earning anything or ending the episode; absent without such steps. */
  readonly idleReward?: number;
  /** First and later observations, each text once; the longest is among them, and all where they are not too many. */
  readonly observations: readonly string[];
  /**
   * Mean share of the words of an episode's first observation that are in a later one: near 1 where each shows the whole state, near 0
   * where each answers the last action. Absent without later ones.
   */
  readonly repetition?: number;
  /** Name in the info of ends that looks like a misspelled `success`. */
  readonly misspelled?: string;
  /** Actions as a policy writes them, each once. */
  readonly actions: readonly string[];
  /** The example actions are all that the schema of JSON actions allows. */
  readonly listsAll?: boolean;
  /** Random play draws numbers of JSON actions that their schema does not bound. */
  readonly isUnbounded?: boolean;
  /** Episodes that failed, and the first failure. */
  readonly failed: { readonly episodes: number; readonly error?: ServerProblem };
}

interface SurveyedEpisode {
  readonly steps: number;
  readonly return: number;
  readonly success: boolean;
  /** True if it ended by its rules or its own limit. */
  readonly ended: boolean;
  /** True if it ended by its rules. */
  readonly terminated: boolean;
}

/**
 * An environment as the server describes it.
 * @throws Error listing environments with similar ids where there is none with this one; ServerProblem
 */
export async function describeEnvironment(
  server: EnvServer,
  envId: string,
  config: JsonObject,
): Promise<EnvironmentDocument> {
  try {
    return await server.describe(envId, config);
  } catch (error) {
    if (!(error instanceof ServerProblem) || error.code !== 'unknown_environment') throw error;
    const known = await environmentIds(server);
    const [best] = similar(envId, known);
    const meant = best === undefined ? '.' : `, did you mean ${best}?`;
    const named = known.slice(0, MAX_NAMED).join(', ');
    const more = known.length > MAX_NAMED ? ` and ${known.length - MAX_NAMED} more` : '';
    throw new Error(`${server.name} has no environment ${envId}${meant} It has ${named || 'none'}${more}.`);
  }
}

/** Ids of a server's environments, custom ones first: they are the ones that people misspell. */
async function environmentIds(server: EnvServer): Promise<string[]> {
  const { environments } = await server.call('list_environments', {});
  const ids = environments.map(({ env_id }) => env_id);
  return ids.sort((a, b) => Number(b.includes('/')) - Number(a.includes('/')));
}

/**
 * Plays an environment at random and measures what it shows.
 * @throws Error where no episode ends in time, or observations are pictures; ServerProblem where more than half of the episodes fail
 */
export async function surveyEnvironment(
  server: EnvServer,
  document: EnvironmentDocument,
  config: JsonObject,
): Promise<Survey> {
  const { env_id, capabilities, max_episode_steps } = document;
  const player = playerOf(document);
  const valid = new Set<string>();
  const act = actor(server, document, player, valid);
  const stepLimit = Math.min(max_episode_steps, MAX_SURVEY_STEPS);
  const open = new Map<number, SurveyedEpisode>();
  const episodes: SurveyedEpisode[] = [];
  const observations = new Observations();
  const repetition = new Repetition();
  const names = new Set<string>();
  const actions = new Set(player === 'names' ? document.actions : []);
  const began = performance.now();
  let stepsTaken = 0;
  let leastReward = Number.POSITIVE_INFINITY;
  let idleReward: number | undefined;
  const input = {
    env_id,
    config,
    num_envs: SURVEY_EPISODES,
    ...(capabilities.seed ? { seed: FIRST_SEED } : {}),
  };
  const see = (observation: OpenEpisode['observation']): string => {
    const seen = observationText(observation);
    refusePicture(env_id, seen);
    observations.add(seen);
    return seen;
  };
  const watched = async (episode: OpenEpisode): Promise<Json> => {
    repetition.add(episode.env, see(episode.observation));
    const action = await act(episode);
    actions.add(written(action, document));
    return action;
  };
  const failed: { episodes: number; error?: ServerProblem } = { episodes: 0 };
  const onProblem = (problem: ServerProblem): void => {
    failed.error ??= problem;
    failed.episodes++;
    if (!costsTheEpisode(problem) || 2 * failed.episodes > SURVEY_EPISODES) throw failed.error;
  };
  for await (const { step, results } of rollout(server, input, watched, { onProblem })) {
    stepsTaken = step;
    for (const { env, observation, reward, terminated, truncated, info } of results) {
      see(observation);
      leastReward = Math.min(leastReward, reward);
      const ended = terminated || truncated;
      if (!ended && reward <= 0) idleReward = Math.max(idleReward ?? Number.NEGATIVE_INFINITY, reward);
      if (ended) for (const name of Object.keys(info)) names.add(name);
      const soFar = {
        steps: step,
        return: (open.get(env)?.return ?? 0) + reward,
        success: ended && info.success === true,
        ended,
        terminated,
      };
      if (ended || step === stepLimit) episodes.push(soFar);
      else open.set(env, soFar);
    }
    if (step === stepLimit || performance.now() - began > MAX_SURVEY_MS) break;
  }
  if (episodes.length === 0) {
    throw new Error(
      `no episode of ${env_id} ended within ${MAX_SURVEY_MS / 1000} s: ${stepsTaken} steps of ${SURVEY_EPISODES} ` +
        'episodes at once took that long. Make its steps faster, or lower its max_episode_steps',
    );
  }
  return {
    document,
    player: valid.size > 0 ? 'valid' : player,
    stepLimit,
    episodes,
    leastReward,
    idleReward,
    observations: observations.texts,
    repetition: repetition.share,
    misspelled: similar(
      SUCCESS,
      [...names].filter(name => name !== SUCCESS),
    )[0],
    actions: [...new Set([...actions, ...valid])],
    listsAll: player === 'examples' && listsAll(document),
    isUnbounded:
      player === 'drawn' &&
      valid.size === 0 &&
      hasUnboundedNumbers(document.action_space.json_schema as JsonObject),
    failed,
  };
}

/** A picture in an observation: its URL, or as many characters of Base64 without a break as no text has, of each kind some. */
const PICTURE = /data:image\/[\w.+-]+;base64,|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{1024}/;
const KINDS = [/[A-Z]/, /[a-z]/, /\d/];

/** @throws Error for an observation with a picture, which a policy that reads text can make nothing of */
function refusePicture(envId: string, text: string): void {
  const found = PICTURE.exec(text);
  if (!found || !(found[0].startsWith('data:') || KINDS.every(kind => kind.test(found[0])))) return;
  throw new Error(
    `${envId} shows a picture as Base64 ("${found[0].slice(0, 24)}…", ${text.length} characters in all), and a small policy reads text: ` +
      'say in the observation what the picture shows, e.g. a grid of characters or coordinates; for models that see pictures: docs/reference/observation-parts.md',
  );
}

/** Observed texts in bounded memory. */
class Observations {
  readonly #kept = new Set<string>();
  #longest = '';
  #characters = 0;

  add(text: string): void {
    if (text.length > this.#longest.length) this.#longest = text;
    if (this.#kept.has(text) || this.#characters + text.length > KEPT_CHARACTERS) return;
    this.#kept.add(text);
    this.#characters += text.length;
  }

  get texts(): string[] {
    return [...this.#kept.add(this.#longest)];
  }
}

/** The share of the first observations' words in later ones. */
class Repetition {
  readonly #first = new Map<number, ReadonlySet<string>>();
  #sum = 0;
  #count = 0;

  /** @param env number of the episode, which has one first observation */
  add(env: number, text: string): void {
    const words = new Set(text.toLowerCase().match(/\p{L}+/gu));
    const first = this.#first.get(env);
    if (!first) this.#first.set(env, words);
    else {
      const again = [...first].filter(word => words.has(word)).length;
      this.#sum += first.size === 0 ? 1 : again / first.size;
      this.#count++;
    }
  }

  get share(): number | undefined {
    return this.#count === 0 ? undefined : this.#sum / this.#count;
  }
}

function playerOf(document: EnvironmentDocument): Player {
  const { actions, action_space, example_actions, references } = document;
  if (spaceType(action_space) === 'Discrete' && actions) return 'names';
  if (example_actions) return 'examples';
  if (references.some(({ name }) => name === RANDOM)) return 'reference';
  return drawnActionsOf(document) ? 'drawn' : 'example';
}

/** True if a list of JSON actions has all that are drawn from their schema. */
function listsAll({ action_space, example_actions = [] }: EnvironmentDocument): boolean {
  if (['Text', 'Discrete'].includes(spaceType(action_space))) return false;
  const schema = action_space.json_schema as JsonObject;
  const listed = new Set(example_actions.map(action => responseJson(action as Json, schema)));
  return drawnActions(schema)?.every(action => listed.has(responseJson(action, schema))) ?? false;
}

/** Type of a Gymnasium space, such as `Text`. */
export const spaceType = ({ gymnasium }: EnvironmentDocument['action_space']): string =>
  (gymnasium as { readonly type: string }).type;

/**
 * Chooses an action of an episode.
 * @param valid receives the valid actions of the states seen, where the environment lists them
 */
function actor(
  server: EnvServer,
  document: EnvironmentDocument,
  player: Player,
  valid: Set<string>,
): (episode: OpenEpisode) => Promise<Json> {
  const generators = Array.from({ length: SURVEY_EPISODES }, (_, env) => Random.fromSeed(env));
  const { actions, action_space, example_actions, example_action } = document;
  const examples = player === 'drawn' ? drawnActionsOf(document) : example_actions;
  const choices = (player === 'names' ? actions : examples) as readonly Json[];
  const isJson = !['Text', 'Discrete'].includes(spaceType(action_space));
  let asks = true;
  return async ({ env, session_id }) => {
    const listed = asks ? (await server.batched('valid_actions', { session_id })).valid_actions : null;
    asks = listed !== null; // An environment that cannot list them is asked once.
    if (listed?.length) {
      // A server lists all names where an environment does not say which are valid.
      if (player !== 'names' || listed.length < choices.length)
        for (const action of listed) valid.add(action);
      const action = generators[env].choice(listed);
      return isJson ? (parseJson(action) as Json) : action;
    }
    if (player === 'example') return example_action as Json;
    if (player !== 'reference') return generators[env].choice(choices);
    const plan = await server.batched('reference', { session_id, policy: RANDOM, count: 1 });
    return (plan.actions[0] ?? example_action) as Json;
  };
}

/** An action as a policy writes it. */
function written(action: Json, { actions, action_space }: EnvironmentDocument): string {
  const type = spaceType(action_space);
  if (type === 'Discrete' && typeof action === 'number' && actions) return actions[action];
  return writtenAction(action, type !== 'Discrete' && type !== 'Text');
}
