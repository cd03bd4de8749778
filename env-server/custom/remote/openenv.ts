import Type from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { type ObservationPart, textOfParts } from '../../../shared/observation-parts.ts';
import type { Random } from '../../../shared/random.ts';
import type { AnyEnvironment, Environment } from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/space.ts';
import { newId } from '../../sessions/ids.ts';
import { aboutSpec } from '../about.ts';
import { InvalidAnswer, isObject } from '../answer.ts';
import { DEFAULT_MAX_STEPS } from '../definition-parts.ts';
import { invalidDefinition } from '../fault.ts';
import type { OpenEnvDefinition } from './definition.ts';
import { Endpoint } from './endpoint.ts';
import type { RemoteNetwork } from './network.ts';
import type { OpenEnvReply } from './openenv-protocol.ts';
import {
  HttpTransport,
  InvalidAction,
  type OpenEnvTransport,
  WebSocketTransport,
} from './openenv-transport.ts';
import { reading } from './reading.ts';
import { instructionOf, namedTools, readTools, type ServiceTool, toolActions } from './service-tools.ts';
import { refused, seedOf } from './webhook.ts';

const MAX_TEXT_LENGTH = 1_000_000;
const MAX_ACTION_LENGTH = 100_000;

/** What the service said of itself when it was registered. */
export interface OpenEnvFacts extends JsonObject {
  readonly name: string;
  readonly description: string;
  /** Where actions call them; null where they do not. */
  readonly tools: readonly ServiceTool[] | null;
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
    tools: definition.tools ? await listTools(endpoint) : null,
  };
  if (facts.name === '') throw invalidDefinition('/title', 'is needed: the service does not tell its name');
  if (definition.tools && definition.action_field !== undefined) {
    throw invalidDefinition('/action_field', 'is for services without tools');
  }
  if (!facts.tools && (definition.instruction ?? facts.description) === '') {
    throw invalidDefinition('/instruction', 'is needed: the service does not describe itself');
  }
  return facts;
}

/** The tools that a service lists by JSON-RPC. @throws Problem */
async function listTools(endpoint: Endpoint): Promise<ServiceTool[]> {
  const request = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} };
  const answer = await endpoint.askObject('POST', 'mcp', request, { repeatable: true });
  return reading(endpoint, () => {
    if (!isObject(answer.result)) throw new InvalidAnswer('tools/list must have a result');
    return readTools(answer.result.tools);
  });
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
  const calls = facts.tools ? toolActions(facts.tools) : undefined;
  const actionSpace: Space = calls
    ? calls.space
    : actionField === undefined
      ? { type: 'Json', schema: { type: 'object' } }
      : { type: 'Text', maxLength: MAX_ACTION_LENGTH };
  const messageOf = (action: Json): JsonObject | undefined => {
    if (calls) {
      const call = calls.read(action);
      return call && { type: 'call_tool', tool_name: call.name, arguments: call.input };
    }
    if (actionField === undefined) return isObject(action) ? action : undefined;
    return typeof action === 'string' && action.length <= MAX_ACTION_LENGTH
      ? { [actionField]: action }
      : undefined;
  };
  if (messageOf(definition.example_action) === undefined) {
    throw invalidDefinition(
      '/example_action',
      calls
        ? `must be ${calls.format}`
        : actionField === undefined
          ? 'must be an object, as no action_field is named'
          : 'must be a text for action_field',
    );
  }

  const stateOf = (session: string, { observation }: OpenEnvReply, success: boolean): State => {
    if (!calls || !('tool_name' in observation)) {
      return { session, text: textOf(observation, observationField), structured: observation, success };
    }
    // The result of a tool may name sessions and times, which differ from episode to episode.
    const text = textOfCall(observation);
    return { session, text, structured: { tool_name: observation.tool_name, text }, success };
  };

  const told = definition.instruction ?? facts.description;
  const instruction = told === '' && facts.tools ? instructionOf(facts.tools) : told;
  const environment: Environment<{ readonly max_steps: number }, State> = {
    spec: {
      ...aboutSpec(
        envId,
        'remote',
        { title: facts.name, description: facts.description || undefined, tags: definition.tags },
        instruction,
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
      instruction,
      actionFormat: calls?.format ?? (actionField === undefined ? 'a JSON object' : 'a text'),
    }),

    ...(facts.tools && { tools: namedTools(facts.tools) }),

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
          const { error } = reply.observation;
          if (calls && isObject(error)) throw new InvalidAction(String(error.message));
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

/** What a call of a tool showed: the content of MCP as text, pictures as `data:` URLs; any other result as JSON. */
function textOfCall({ result }: JsonObject): string {
  if (typeof result === 'string') return result;
  const content = isObject(result) ? result.content : undefined;
  if (!Array.isArray(content)) return JSON.stringify(result ?? null);
  const parts = content.map((block): ObservationPart => {
    if (isObject(block) && block.type === 'image' && typeof block.data === 'string') {
      return { type: 'image', mime: String(block.mimeType), data: block.data };
    }
    const isText = isObject(block) && typeof block.text === 'string';
    return { type: 'text', text: isText ? (block.text as string) : JSON.stringify(block) };
  });
  return textOfParts(parts);
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
