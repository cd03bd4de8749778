import Type, { type TObject, type TSchema } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import type { ActionTool, AnyEnvironment, Environment } from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/space.ts';
import { aboutSpec } from '../about.ts';
import { isObject } from '../answer.ts';
import { DEFAULT_MAX_STEPS } from '../definition-parts.ts';
import { DefinitionFaults, invalidDefinition } from '../fault.ts';
import { compileSubset } from '../schema-subset.ts';
import type { OrsDefinition } from './definition.ts';
import { Endpoint, type RemoteNetwork } from './endpoint.ts';
import { OrsService, type OrsTool, RefusedCall } from './ors-service.ts';
import { refused, seedOf } from './webhook.ts';

const MAX_TEXT_LENGTH = 2_000_000;
const MAX_ACTION_LENGTH = 100_000;
const MAX_TOOLS = 128;
const MAX_TOLD_LENGTH = 10_000;
const TOOL_NAME = /^[A-Za-z_][\w-]{0,63}$/;
const DEFAULT_SPLIT = 'train';

/** What the service said of itself when it was registered. */
export interface OrsFacts extends JsonObject {
  readonly tools: readonly OrsTool[];
  /** Number of tasks by split. */
  readonly splits: { readonly [name: string]: number };
}

interface State {
  readonly session: string;
  readonly text: string;
  readonly success: boolean;
}

/** A call of a tool. */
type ToolCall = { readonly name: string; readonly input: JsonObject };

/**
 * Asks the service for its tools and splits.
 * @throws Problem `invalid_request`, `remote_unavailable`, `remote_failed`
 */
export async function learnOrs(
  envId: string,
  definition: OrsDefinition,
  network: RemoteNetwork,
): Promise<OrsFacts> {
  const endpoint = new Endpoint(envId, definition, network);
  await endpoint.checkAddress();
  const service = new OrsService(endpoint, definition.env_name);
  const tools = await service.tools();
  if (tools.length > MAX_TOOLS) {
    throw endpoint.failed(`has ${tools.length} tools; at most ${MAX_TOOLS} are taken`);
  }
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
 * A service that speaks the Open Reward Standard: a call of a tool is an action, its blocks are the observation, and a
 * seed chooses the task. `finished` is our `terminated`; an episode is a success when it is finished with a reward above 0.
 * @throws Problem `invalid_request`
 */
export function orsEnvironment(
  envId: string,
  definition: OrsDefinition,
  { tools, splits }: OrsFacts,
  network: RemoteNetwork,
): AnyEnvironment {
  const endpoint = new Endpoint(envId, definition, network);
  const service = new OrsService(endpoint, definition.env_name);
  const {
    split = DEFAULT_SPLIT,
    seed: seedable = true,
    max_episode_steps: maxSteps = DEFAULT_MAX_STEPS,
  } = definition;
  const { space, read, format } = actionsOf(definition, tools);
  if (read(definition.example_action) === undefined) {
    throw invalidDefinition('/example_action', `must be ${format}`);
  }
  const instruction = definition.instruction ?? instructionOf(tools);
  const playable = Object.keys(splits).filter(name => splits[name] > 0);

  const environment: Environment<OrsConfig, State> = {
    spec: {
      ...aboutSpec(
        envId,
        'remote',
        { title: definition.title ?? definition.env_name ?? envId, ...aboutOf(definition) },
        instruction,
      ),
      configSchema: Type.Object(
        {
          max_steps: Type.Integer({ default: maxSteps, minimum: 1, maximum: maxSteps }),
          split: Type.Union(
            playable.map(name => Type.Literal(name)),
            { default: split, description: 'Tasks of this split are played.' },
          ),
        },
        { additionalProperties: false },
      ),
      optionsSchema: Type.Object(
        { index: Type.Optional(Type.Integer({ minimum: 0, description: 'Plays this task of the split.' })) },
        { additionalProperties: false },
      ),
      observationSpace: { type: 'Text', maxLength: MAX_TEXT_LENGTH },
      actionSpace: space,
      observationFormats: ['text', 'structured'],
      rewardRange: [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY],
      maxEpisodeSteps: maxSteps,
      exampleAction: definition.example_action,
      ...(!seedable && { seedable: false }),
    },

    describe: () => ({ instruction, actionFormat: format }),

    ...(space.type === 'Json' && { tools: tools.filter(({ name }) => TOOL_NAME.test(name)).map(actionTool) }),

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
        // What the service says of a call is what the player can learn from.
        const transition = refused({ ...state, text: error.message });
        return { ...transition, info: { ...transition.info, message: error.message } };
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

const aboutOf = ({ description, tags }: OrsDefinition) => ({
  ...(description !== undefined && { description }),
  ...(tags !== undefined && { tags }),
});

const namesOf = (tools: readonly OrsTool[]): string => tools.map(({ name }) => name).join(', ');

interface Actions {
  readonly space: Space;
  /** How an action is written. */
  readonly format: string;
  /** The call of an action; undefined for one that is none. */
  read(action: Json): ToolCall | undefined;
}

function actionsOf(
  { action_tool: tool, action_field: field }: OrsDefinition,
  tools: readonly OrsTool[],
): Actions {
  if ((tool === undefined) !== (field === undefined)) {
    throw invalidDefinition('/action_tool', 'action_tool and action_field go together');
  }
  if (tool !== undefined && field !== undefined) {
    return {
      space: { type: 'Text', maxLength: MAX_ACTION_LENGTH },
      format: 'a text',
      read: action =>
        typeof action === 'string' && action.length <= MAX_ACTION_LENGTH
          ? { name: tool, input: { [field]: action } }
          : undefined,
    };
  }
  const schema = {
    type: 'object',
    required: ['name'],
    properties: { name: { type: 'string', enum: tools.map(({ name }) => name) }, input: { type: 'object' } },
    additionalProperties: false,
  };
  return {
    space: { type: 'Json', schema },
    format: 'a call of a tool: {"name": …, "input": {…}}',
    read(action) {
      if (!isObject(action) || typeof action.name !== 'string') return undefined;
      const { name, input = {} } = action;
      return isObject(input) ? { name: name as string, input } : undefined;
    },
  };
}

/** What a player is told where the definition does not say it: the tools. */
function instructionOf(tools: readonly OrsTool[]): string {
  const lines = tools.map(({ name, description, input_schema: schema }) => {
    const properties = isObject(schema?.properties) ? Object.keys(schema.properties) : [];
    return `- ${name}(${properties.join(', ')}): ${description}`;
  });
  return `Do what the task asks by calling tools.\n${lines.join('\n')}`.slice(0, MAX_TOLD_LENGTH);
}

function actionTool({ name, description, input_schema: schema }: OrsTool): ActionTool {
  return {
    name,
    description,
    parameters: parametersOf(schema),
    action: given => ({ name, input: given }),
  };
}

/** The arguments of a tool. What a schema says that is not of the subset is left to the service to check. */
function parametersOf(schema: JsonObject | null): TObject {
  const given = isObject(schema?.properties) ? schema.properties : {};
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  const properties: { [name: string]: TSchema } = {};
  for (const [key, node] of Object.entries(given)) {
    const faults = new DefinitionFaults();
    const compiled = compileSubset(node, '', faults);
    const known = faults.none ? compiled : Type.Unknown(descriptionOf(node));
    properties[key] = required.has(key) ? known : Type.Optional(known);
  }
  return Type.Object(properties, { additionalProperties: false });
}

const descriptionOf = (node: Json): { description?: string } =>
  isObject(node) && typeof node.description === 'string' ? { description: node.description } : {};
