import type { JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { AnyEnvironment, Environment, EnvironmentSpec } from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/spaces.ts';
import { refused } from '../answer.ts';
import type { OrsDefinition } from '../definitions/definition.ts';
import { DEFAULT_MAX_STEPS, stepsSetting } from '../definitions/definition-parts.ts';
import { invalidDefinition } from '../definitions/fault.ts';
import { listsOf } from '../definitions/word-lists.ts';
import { Endpoint } from './endpoint.ts';
import type { OwnedNetwork } from './network.ts';
import { OrsService, RefusedCall } from './ors-service.ts';
import {
  instructionOf,
  isTextAction,
  namedTools,
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
