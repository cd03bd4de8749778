import type { TObject, TSchema } from 'typebox';
import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { ActionTool, EnvironmentSpec } from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/spaces.ts';
import { InvalidAnswer } from '../answer.ts';
import { aboutSpec, stepsSetting } from '../definitions/definition-parts.ts';
import { DefinitionFaults } from '../definitions/fault.ts';
import { compileSubset } from '../definitions/schema-subset.ts';

/** The session's own seed where it is known, so that a service sees the seeds that its users give. */
export function seedOf(rng: Random): number {
  return rng.seed ?? rng.uint32();
}

type ServiceParts = Pick<EnvironmentSpec, 'actionSpace' | 'observationSpace' | 'exampleAction'> &
  Partial<EnvironmentSpec>;

/**
 * Spec of an environment behind a service: no options and any reward, unless `parts` say otherwise.
 * @param summary description where the definition has none
 */
export function serviceSpec(
  envId: string,
  about: Parameters<typeof aboutSpec>[2],
  summary: string,
  maxSteps: number,
  { seedable, ...parts }: ServiceParts,
): EnvironmentSpec {
  return {
    ...aboutSpec(envId, 'remote', about, summary),
    configSchema: closed({ max_steps: stepsSetting(maxSteps) }),
    optionsSchema: closed({}),
    observationFormats: ['text', 'structured'],
    rewardRange: [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY],
    maxEpisodeSteps: maxSteps,
    ...(!seedable && { seedable: false }),
    ...parts,
  };
}

const MAX_ACTION_LENGTH = 100_000;

/** Actions that are text, which the service gets in a field. */
export const TEXT_ACTIONS: Space = { type: 'Text', maxLength: MAX_ACTION_LENGTH };

/** True for one of them. */
export function isTextAction(action: Json): action is string {
  return typeof action === 'string' && action.length <= MAX_ACTION_LENGTH;
}

const MAX_TOOLS = 128;
const MAX_TOLD_LENGTH = 10_000;
const TOOL_NAME = /^[A-Za-z_][\w-]{0,63}$/;

/** A tool of a service. */
export interface ServiceTool extends JsonObject {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its arguments; null for none. */
  readonly input_schema: JsonObject | null;
}

type ToolCall = { readonly name: string; readonly input: JsonObject };

/** Tool calls as actions. */
export interface ToolActions {
  readonly space: Space;
  /** Syntax of an action. */
  readonly format: string;
  /** The call of an action; undefined where it is not a call. */
  read(action: Json): ToolCall | undefined;
}

/** @throws InvalidAnswer */
export function readTools(given: unknown): ServiceTool[] {
  if (!Array.isArray(given) || given.length === 0) throw new InvalidAnswer('tools must be a list of tools');
  if (given.length > MAX_TOOLS) {
    throw new InvalidAnswer(`it has ${given.length} tools; at most ${MAX_TOOLS} are taken`);
  }
  return given.map((tool, i) => {
    if (!isObject(tool) || typeof tool.name !== 'string' || tool.name === '') {
      throw new InvalidAnswer(`tools/${i} must be an object with a name`);
    }
    const { name, description, input_schema: schema = tool.inputSchema } = tool;
    return {
      name,
      description: typeof description === 'string' ? description : '',
      input_schema: isObject(schema) ? schema : null,
    };
  });
}

/** Actions `{"name": …, "input": {…}}`. */
export function toolActions(tools: readonly ServiceTool[]): ToolActions {
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

/** Default instruction for players: a list of the tools. */
export function instructionOf(tools: readonly ServiceTool[]): string {
  const lines = tools.map(({ name, description, input_schema: schema }) => {
    const properties = isObject(schema?.properties) ? Object.keys(schema.properties) : [];
    return `- ${name}(${properties.join(', ')}): ${description}`;
  });
  return `Do what the task asks by calling tools.\n${lines.join('\n')}`.slice(0, MAX_TOLD_LENGTH);
}

/** Tools by which players of this server call the service's tools; invalid tool names need plain calls. */
export function namedTools(tools: readonly ServiceTool[]): ActionTool[] {
  return tools.filter(({ name }) => TOOL_NAME.test(name)).map(actionTool);
}

function actionTool({ name, description, input_schema: schema }: ServiceTool): ActionTool {
  return {
    name,
    description,
    parameters: parametersOf(schema),
    action: given => ({ name, input: given }),
  };
}

/** Schema of a tool's arguments. The service checks what the schema subset cannot express. */
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
  return closed(properties);
}

const descriptionOf = (node: Json): { description?: string } =>
  isObject(node) && typeof node.description === 'string' ? { description: node.description } : {};
