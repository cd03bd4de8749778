import type { TProperties, TSchema } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { ActionTool } from '../../environments/core/environment.ts';
import { jsonSchema } from '../../environments/core/space-documents.ts';
import { AnyJson, Config, Options, Seed, SessionId } from '../../operations/schemas/fields.ts';
import { compileCheck, type InputCheck } from '../../operations/validation.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import { RpcError } from './json-rpc.ts';
import type { ToolDocument } from './results.ts';

/** Tools that every environment has. */
const COMMON_TOOLS = ['reset', 'step', 'observe', 'valid_actions', 'close_session'] as const;
type CommonTool = (typeof COMMON_TOOLS)[number];
const isCommon = (name: string): boolean => (COMMON_TOOLS as readonly string[]).includes(name);

/** A tool of an environment, with the check of its arguments. */
export interface Tool {
  readonly document: ToolDocument;
  readonly common: CommonTool | undefined;
  /** Action that a call of a named tool takes. */
  readonly action: ActionTool['action'] | undefined;
  readonly check: InputCheck;
}

export type Tools = ReadonlyMap<string, Tool>;

/** Source of the session id: the connection, or an argument of every call. */
export type Addressing = 'connection' | 'argument';

const tables = new WeakMap<Variant, { readonly [addressing in Addressing]?: Tools }>();

/** The tools of an environment under one configuration and wrappers. */
export function toolsOf(variant: Variant, addressing: Addressing): Tools {
  const known = tables.get(variant) ?? {};
  const tools = known[addressing] ?? makeTools(variant, addressing);
  tables.set(variant, { ...known, [addressing]: tools });
  return tools;
}

/**
 * The tool of a call, with validated arguments.
 * @throws RpcError for an unknown tool; Problem `invalid_request` for wrong arguments
 */
export function toolOfCall(tools: Tools, name: string, given: JsonObject): Tool {
  const tool = tools.get(name);
  if (!tool) {
    const known = [...tools.keys()].join(', ');
    throw new RpcError('invalidParams', `Tool not found: ${JSON.stringify(name)}; there are ${known}`);
  }
  tool.check(given);
  return tool;
}

function makeTools(variant: Variant, addressing: Addressing): Tools {
  const { environment, config } = variant;
  const { instruction, actions, actionFormat } = environment.describe(config);
  const session: TProperties = addressing === 'argument' ? { session_id: SessionId } : {};
  // Tools of a service may have any name.
  const named = (environment.tools ?? []).filter(({ name }) => !isCommon(name));
  const written = actionFormat ?? (actions && `one of ${actions.join(', ')}`);
  const tools: Tool[] = [];
  const add = (
    name: CommonTool,
    description: string,
    properties: TProperties,
    shown: TProperties = {},
  ): void => {
    tools.push({
      document: { name, description, inputSchema: documentOf(closed({ ...properties, ...shown })) },
      common: name,
      action: undefined,
      check: compileCheck(closed(properties), name),
    });
  };
  add(
    'reset',
    `Begins an episode and shows what you see. ${instruction}`,
    addressing === 'connection'
      ? { seed: Type.Optional(Seed), options: Type.Optional(Options) }
      : {
          seed: Type.Optional(Seed),
          options: Type.Optional(Options),
          config: Type.Optional(Config),
          session_id: Type.Optional(
            Type.String({
              ...SessionId,
              description: 'A session to continue with; without it a new one is opened.',
            }),
          ),
        },
  );
  add(
    'step',
    `Takes an action${written === undefined ? '' : `: ${written}`}.`,
    { ...session, action: AnyJson() },
    { action: Type.Unsafe<Json>(jsonSchema(environment.spec.actionSpace)) },
  );
  add('observe', 'Shows what you see now, and how the episode stands.', session);
  add('valid_actions', 'Lists the actions that are legal now, where the environment can.', session);
  if (addressing === 'argument')
    add('close_session', 'Ends the session. One that nobody uses expires.', session);
  for (const { name, description, parameters, action } of named) {
    const schema = closed({ ...session, ...parameters.properties });
    tools.push({
      document: { name, description, inputSchema: documentOf(schema) },
      common: undefined,
      action,
      check: compileCheck(schema, name),
    });
  }
  return new Map(tools.map(tool => [tool.document.name, tool]));
}

/** A schema as plain JSON. */
const documentOf = (schema: TSchema): JsonObject => JSON.parse(JSON.stringify(schema)) as JsonObject;
