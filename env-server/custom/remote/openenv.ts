import Type from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import type { AnyEnvironment, Environment } from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/space.ts';
import { newId } from '../../sessions/ids.ts';
import { aboutSpec } from '../about.ts';
import { InvalidAnswer, isObject } from '../answer.ts';
import { DEFAULT_MAX_STEPS } from '../definition-parts.ts';
import { invalidDefinition } from '../fault.ts';
import type { OpenEnvDefinition } from './definition.ts';
import { Endpoint, type RemoteNetwork } from './endpoint.ts';
import type { OpenEnvReply } from './openenv-protocol.ts';
import {
  HttpTransport,
  InvalidAction,
  type OpenEnvTransport,
  WebSocketTransport,
} from './openenv-transport.ts';
import { reading } from './reading.ts';
import { refused, seedOf } from './webhook.ts';

const MAX_TEXT_LENGTH = 1_000_000;
const MAX_ACTION_LENGTH = 100_000;

/** What the service said of itself when it was registered. */
export interface OpenEnvFacts extends JsonObject {
  readonly name: string;
  readonly description: string;
}

interface State {
  readonly session: string;
  readonly text: string;
  readonly structured: JsonObject;
  readonly success: boolean;
}

/**
 * Asks the service for its metadata; services without have their definition only.
 * @throws Problem `invalid_request`, `remote_unavailable`, `remote_failed`
 */
export async function learnOpenEnv(
  envId: string,
  definition: OpenEnvDefinition,
  network: RemoteNetwork,
): Promise<OpenEnvFacts> {
  const endpoint = new Endpoint(envId, definition, network);
  await endpoint.checkAddress();
  const { status, body } = await endpoint.ask('GET', 'metadata');
  const { name, description } = status < 400 && isObject(body) ? body : {};
  const facts = {
    name: definition.title ?? (typeof name === 'string' ? name : ''),
    description: definition.description ?? (typeof description === 'string' ? description : ''),
  };
  if (facts.name === '') throw invalidDefinition('/title', 'is needed: the service does not tell its name');
  if ((definition.instruction ?? facts.description) === '') {
    throw invalidDefinition('/instruction', 'is needed: the service does not describe itself');
  }
  return facts;
}

/**
 * A service that speaks the protocol of OpenEnv, over a separate WebSocket for each episode or over HTTP. Its `done`
 * is our `terminated`; an episode is a success when it is done with a reward above 0.
 * @throws Problem `invalid_request`
 */
export function openEnvEnvironment(
  envId: string,
  definition: OpenEnvDefinition,
  facts: OpenEnvFacts,
  network: RemoteNetwork,
): AnyEnvironment {
  const endpoint = new Endpoint(envId, definition, network);
  const transport: OpenEnvTransport =
    definition.transport === 'http' ? new HttpTransport(endpoint) : new WebSocketTransport(endpoint);
  const {
    action_field: actionField,
    observation_field: observationField,
    seed: seedable = false,
  } = definition;
  const maxSteps = definition.max_episode_steps ?? DEFAULT_MAX_STEPS;
  const actionSpace: Space =
    actionField === undefined
      ? { type: 'Json', schema: { type: 'object' } }
      : { type: 'Text', maxLength: MAX_ACTION_LENGTH };
  const messageOf = (action: Json): JsonObject | undefined => {
    if (actionField === undefined) return isObject(action) ? action : undefined;
    return typeof action === 'string' && action.length <= MAX_ACTION_LENGTH
      ? { [actionField]: action }
      : undefined;
  };
  if (messageOf(definition.example_action) === undefined) {
    throw invalidDefinition(
      '/example_action',
      actionField === undefined
        ? 'must be an object, as no action_field is named'
        : 'must be a text for action_field',
    );
  }

  const stateOf = (session: string, { observation }: OpenEnvReply, success: boolean): State => ({
    session,
    text: textOf(observation, observationField),
    structured: observation,
    success,
  });

  const environment: Environment<{ readonly max_steps: number }, State> = {
    spec: {
      ...aboutSpec(
        envId,
        'remote',
        { title: facts.name, description: facts.description || undefined, tags: definition.tags },
        definition.instruction ?? '',
      ),
      configSchema: Type.Object(
        { max_steps: Type.Integer({ default: maxSteps, minimum: 1, maximum: maxSteps }) },
        { additionalProperties: false },
      ),
      optionsSchema: Type.Object({}, { additionalProperties: false }),
      observationSpace: { type: 'Text', maxLength: MAX_TEXT_LENGTH },
      actionSpace,
      observationFormats: ['text', 'structured'],
      rewardRange: [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY],
      maxEpisodeSteps: maxSteps,
      exampleAction: definition.example_action,
      ...(!seedable && { seedable: false }),
    },

    describe: () => ({
      instruction: definition.instruction ?? facts.description,
      actionFormat: actionField === undefined ? 'a JSON object' : 'a text',
    }),

    async reset(_config, rng: Random) {
      const session = newId('r');
      const request: JsonObject = { episode_id: session, ...(seedable && { seed: seedOf(rng) }) };
      const reply = await transport.reset(session, request);
      try {
        return reading(endpoint, () => stateOf(session, reply, false));
      } catch (error) {
        await transport.close(session);
        throw error;
      }
    },

    async step(state, action) {
      const message = messageOf(action);
      if (message === undefined) return refused(state);
      try {
        const reply = await transport.step(state.session, message);
        return reading(endpoint, () => {
          const success = reply.done && reply.reward > 0;
          const next = stateOf(state.session, reply, success);
          const info = { success, action_is_valid: true, action_is_effective: next.text !== state.text };
          return { state: next, reward: reply.reward, terminated: reply.done, info };
        });
      } catch (error) {
        if (!(error instanceof InvalidAction)) throw error;
        const transition = refused(state);
        return { ...transition, info: { ...transition.info, message: error.message } };
      }
    },

    observe: ({ text, structured }, format) => (format === 'structured' ? structured : text),

    dispose: ({ session }) => transport.close(session),
  };
  return environment as unknown as AnyEnvironment;
}

/** @throws BadAnswer */
function textOf(observation: JsonObject, field: string | undefined): string {
  if (field === undefined) return JSON.stringify(observation);
  const value = observation[field];
  if (value === undefined) {
    throw new InvalidAnswer(
      `the observation has no field "${field}"; it has ${Object.keys(observation).join(', ') || 'none'}`,
    );
  }
  return typeof value === 'string' ? value : JSON.stringify(value);
}
