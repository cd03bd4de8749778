import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { type ObservationPart, textOfParts } from '../../../shared/observation-parts.ts';
import type { Random } from '../../../shared/random.ts';
import type { AnyEnvironment, Environment } from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/spaces.ts';
import { newId } from '../../sessions/ids.ts';
import { InvalidAnswer, refused } from '../answer.ts';
import type { OpenEnvDefinition } from '../definitions/definition.ts';
import { DEFAULT_MAX_STEPS, listsOf } from '../definitions/definition-parts.ts';
import { invalidDefinition } from '../definitions/fault.ts';
import { Endpoint, excerpt } from './endpoint.ts';
import type { OwnedNetwork } from './network.ts';
import {
  HttpTransport,
  InvalidAction,
  type OpenEnvTransport,
  WebSocketTransport,
} from './openenv-transport.ts';
import {
  instructionOf,
  isTextAction,
  namedTools,
  readTools,
  type ServiceTool,
  seedOf,
  serviceSpec,
  TEXT_ACTIONS,
  toolActions,
} from './service.ts';

const MAX_TEXT_LENGTH = 1_000_000;

/** The service's description of itself at registration. */
export interface OpenEnvFacts extends JsonObject {
  readonly name: string;
  readonly description: string;
  /** Tools that actions call; null where actions are not tool calls. */
  readonly tools: readonly ServiceTool[] | null;
}

interface State {
  readonly session: string;
  readonly text: string;
  readonly structured: JsonObject;
  readonly success: boolean;
}

/**
 * Asks the service for its metadata; a service without metadata has only its definition.
 * @throws Problem `invalid_request`, `remote_unavailable`, `remote_failed`
 */
export async function learnOpenEnv(
  envId: string,
  definition: OpenEnvDefinition,
  network: OwnedNetwork,
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
  if (facts.name === '') throw invalidDefinition('/title', 'is needed: the service does not report its name');
  if (definition.tools && definition.action_field !== undefined) {
    throw invalidDefinition('/action_field', 'is for services without tools');
  }
  if (!facts.tools && (definition.instruction ?? facts.description) === '') {
    throw invalidDefinition('/instruction', 'is needed: the service does not describe itself');
  }
  if (definition.transport === 'http') await requireState(endpoint, definition, facts);
  return facts;
}

/**
 * OpenEnv servers make a new environment for each HTTP request unless they were written to keep sessions; a step then
 * continues nothing. This plays two steps and checks that the service counts them. Where it shows no count, it checks
 * whether a session without a reset gets the same reply.
 * @throws Problem `invalid_request`, `remote_unavailable`, `remote_failed`
 */
async function requireState(
  endpoint: Endpoint,
  definition: OpenEnvDefinition,
  { tools }: OpenEnvFacts,
): Promise<void> {
  const action = actionsOf(definition, tools).message(definition.example_action);
  if (action === undefined) return;
  const transport = new HttpTransport(endpoint);
  const [session, never] = [newId('r'), newId('r')];
  const refuse = (seen: string): never => {
    const socket = endpoint.url('ws').href.replace(/^http/, 'ws');
    throw invalidDefinition(
      '/transport',
      `is "http", but the service keeps no state between requests: ${seen}. Leave "transport" out: over the WebSocket ${socket} each episode has its own`,
    );
  };
  try {
    const begun = await transport.reset(session, { episode_id: session });
    const first = await transport.step(session, action);
    const last = first.done ? first : await transport.step(session, action);
    const steps = first.done ? 1 : 2;
    const count = await transport.stepCount(session);
    if (count !== undefined && count < steps) refuse(`after ${steps} steps it has counted ${count}`);
    if (count !== undefined || begun.done || first.done) return;
    // A service that refuses the step shows nothing.
    const other = await transport.step(never, action).catch(() => undefined);
    const replies = [first, last, other];
    if (new Set(replies.map(reply => JSON.stringify(reply))).size === 1) {
      refuse('a step gets the same reply in a session that was never reset');
    }
  } catch (error) {
    // The later check reports faults of the example.
    if (!(error instanceof InvalidAction)) throw error;
  }
}

/** The tools that a service lists by JSON-RPC. @throws Problem */
async function listTools(endpoint: Endpoint): Promise<ServiceTool[]> {
  const request = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} };
  const answer = await endpoint.askObject('POST', 'mcp', request, { repeatable: true });
  return endpoint.reading(() => {
    if (!isObject(answer.result)) throw new InvalidAnswer('tools/list must have a result');
    return readTools(answer.result.tools);
  });
}

/**
 * A service that speaks OpenEnv's protocol, over one WebSocket an episode or over HTTP. Its `done` becomes
 * `terminated`; an episode succeeds when it is done with a reward above 0.
 * @throws Problem `invalid_request`
 */
export function openEnvEnvironment(
  envId: string,
  definition: OpenEnvDefinition,
  facts: OpenEnvFacts,
  network: OwnedNetwork,
): AnyEnvironment {
  const endpoint = new Endpoint(envId, definition, network);
  const transport: OpenEnvTransport =
    definition.transport === 'http' ? new HttpTransport(endpoint) : new WebSocketTransport(endpoint);
  const tooled = facts.tools !== null;
  const actions = actionsOf(definition, facts.tools);
  if (actions.message(definition.example_action) === undefined) {
    throw invalidDefinition('/example_action', `must be ${actions.needed}`);
  }
  const lists = listsOf(definition, action => actions.message(action) !== undefined);
  const given = definition.instruction ?? facts.description;
  const instruction = given === '' && facts.tools ? instructionOf(facts.tools) : given;
  const shown = { tooled, field: definition.observation_field };
  const environment: Environment<{ readonly max_steps: number }, State> = {
    spec: serviceSpec(
      envId,
      { title: facts.name, description: facts.description || undefined, tags: definition.tags },
      instruction,
      definition.max_episode_steps ?? DEFAULT_MAX_STEPS,
      {
        observationSpace: { type: 'Text', maxLength: MAX_TEXT_LENGTH },
        actionSpace: actions.space,
        exampleAction: definition.example_action,
        seedable: definition.seed === true,
      },
    ),
    describe: () => ({ instruction, actionFormat: actions.format, ...lists.description }),
    ...(lists.references && { references: lists.references }),
    ...(facts.tools && { tools: namedTools(facts.tools) }),

    async reset(_config, rng: Random) {
      const session = newId('r');
      const request: JsonObject = { episode_id: session, ...(definition.seed && { seed: seedOf(rng) }) };
      const reply = await transport.reset(session, request);
      try {
        return endpoint.reading(() => ({ session, ...seen(reply.observation, shown), success: false }));
      } catch (error) {
        await transport.close(session);
        throw error;
      }
    },

    async step(state, action) {
      const message = actions.message(action);
      if (message === undefined) return refused(state);
      try {
        const reply = await transport.step(state.session, message);
        return endpoint.reading(() => {
          const { error } = reply.observation;
          if (tooled && isObject(error)) throw new InvalidAction(excerpt(error.message));
          const success = reply.done && reply.reward > 0;
          const next = { session: state.session, ...seen(reply.observation, shown), success };
          const info = { success, action_is_valid: true, action_is_effective: next.text !== state.text };
          return { state: next, reward: reply.reward, terminated: reply.done, info };
        });
      } catch (error) {
        if (!(error instanceof InvalidAction)) throw error;
        return refused(state, error.message);
      }
    },

    observe: ({ text, structured }, format) => (format === 'structured' ? structured : text),

    dispose: ({ session }) => transport.close(session),
  };
  return environment as unknown as AnyEnvironment;
}

/** Translates actions into messages to the service. */
interface ServiceActions {
  readonly space: Space;
  /** Syntax of an action, for players. */
  readonly format: string;
  /** Requirement on the definition's example action, for error messages. */
  readonly needed: string;
  /** Message to the service; undefined for an invalid action. */
  message(action: Json): JsonObject | undefined;
}

function actionsOf(
  { action_field: field }: OpenEnvDefinition,
  tools: readonly ServiceTool[] | null,
): ServiceActions {
  if (tools) {
    const calls = toolActions(tools);
    return {
      space: calls.space,
      format: calls.format,
      needed: calls.format,
      message: action => {
        const call = calls.read(action);
        return call && { type: 'call_tool', tool_name: call.name, arguments: call.input };
      },
    };
  }
  if (field === undefined) {
    return {
      space: { type: 'Json', schema: { type: 'object' } },
      format: 'a JSON object',
      needed: 'an object, as no action_field is named',
      message: action => (isObject(action) ? action : undefined),
    };
  }
  return {
    space: TEXT_ACTIONS,
    format: 'a text',
    needed: 'a string for action_field',
    message: action => (isTextAction(action) ? { [field]: action } : undefined),
  };
}

/**
 * The player's view of an observation.
 * @throws InvalidAnswer
 */
function seen(
  observation: JsonObject,
  { tooled, field }: { readonly tooled: boolean; readonly field: string | undefined },
): Pick<State, 'text' | 'structured'> {
  if (!tooled || !('tool_name' in observation)) {
    return { text: textOf(observation, field), structured: observation };
  }
  // A tool's result may contain session names and times, which differ between episodes.
  const text = textOfCall(observation);
  return { text, structured: { tool_name: observation.tool_name, text } };
}

/** Text of a tool call's result: MCP content as text, pictures as `data:` URLs; any other result as JSON. */
function textOfCall({ result }: JsonObject): string {
  if (typeof result === 'string') return result;
  const content = isObject(result) ? result.content : undefined;
  if (!Array.isArray(content)) return JSON.stringify(result ?? null);
  const parts = content.map((block): ObservationPart => {
    if (isObject(block) && block.type === 'image' && typeof block.data === 'string') {
      return { type: 'image', mime: excerpt(block.mimeType), data: block.data };
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
