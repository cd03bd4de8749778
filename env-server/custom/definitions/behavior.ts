import type { TObject, TSchema } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { namedActions, randomPolicy } from '../../environments/core/actions.ts';
import type {
  Description,
  Environment,
  EnvironmentSpec,
  ReferencePolicy,
} from '../../environments/core/environment.ts';
import type { Space } from '../../environments/core/spaces.ts';
import { actionCheck } from '../../sessions/episodes/variant.ts';
import type { ScriptDefinition, WebhookDefinition } from './definition.ts';
import {
  aboutSpec,
  compileLists,
  DEFAULT_MAX_STEPS,
  type DefinedActionSpace,
  stepsSetting,
} from './definition-parts.ts';
import { DefinitionFaults } from './fault.ts';
import { compileSubset } from './schema-subset.ts';

const DEFAULT_OBSERVATION_LENGTH = 10_000;
const DEFAULT_ACTION_LENGTH = 2000;

/** Compiled definition of a script or webhook environment. */
export interface Behavior {
  readonly spec: EnvironmentSpec;
  describe(): Description;
  /**
   * The action as the environment expects it: a name for a discrete space; undefined for an action outside the space.
   */
  accept(action: Json): Json | undefined;
  readonly references?: { readonly [name: string]: ReferencePolicy<unknown> };
}

/** @throws Problem `invalid_request` with JSON pointers to every fault */
export function compileBehavior(envId: string, definition: ScriptDefinition | WebhookDefinition): Behavior {
  const faults = new DefinitionFaults();
  const maxSteps = definition.max_episode_steps ?? DEFAULT_MAX_STEPS;
  const actions = compileActions(definition.action_space, faults);
  const [least, most] = definition.reward_range ?? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  if (least > most)
    faults.add('/reward_range', `the least reward ${least} is greater than the greatest ${most}`);
  const spec: EnvironmentSpec = {
    ...aboutSpec(envId, definition.kind, definition, definition.instruction),
    configSchema: configSchema(definition.config_schema, maxSteps, faults),
    optionsSchema: objectSchema(definition.options_schema, '/options_schema', faults),
    observationSpace: {
      type: 'Text',
      maxLength: definition.observation_max_length ?? DEFAULT_OBSERVATION_LENGTH,
    },
    actionSpace: actions.space,
    observationFormats: ['text', 'structured'],
    rewardRange: [least, most],
    maxEpisodeSteps: maxSteps,
    exampleAction: definition.example_action,
  };
  if (actions.accept(definition.example_action) === undefined) {
    faults.add('/example_action', 'is not an action of the action space');
  }
  if (definition.action_space.type === 'Discrete' && definition.actions) {
    faults.add('/actions', 'is for spaces of text and JSON: a discrete space has the names of its actions');
  }
  const lists = compileLists(definition, action => actions.accept(action) !== undefined, faults);
  faults.raise();
  const references = actions.references ?? lists.references;
  return {
    spec,
    describe: () => ({
      instruction: definition.instruction,
      ...actions.description,
      ...lists.description,
    }),
    accept: actions.accept,
    ...(references && { references }),
  };
}

/** State of an environment that lists the actions that are legal in it. */
interface Listed {
  readonly valid?: readonly Json[];
}

/** Lists the valid actions of states; the reference `random` draws from them where the definition names no actions. */
export function listingValidActions<State extends Listed>(
  references: Behavior['references'],
): Pick<Environment<never, State>, 'validActions' | 'references'> {
  const validActions = ({ valid = [] }: Listed) => valid;
  const random: ReferencePolicy<Listed> = {
    title: 'Valid actions, drawn uniformly',
    plan(state, _count, rng) {
      const valid = validActions(state);
      return valid.length === 0 ? [] : [rng.choice(valid)];
    },
  };
  return { validActions, references: { random, ...references } };
}

interface Actions {
  readonly space: Space;
  readonly description: Pick<Description, 'actions' | 'actionFormat'>;
  readonly accept: Behavior['accept'];
  readonly references?: Behavior['references'];
}

function compileActions(space: DefinedActionSpace, faults: DefinitionFaults): Actions {
  switch (space.type) {
    case 'Discrete': {
      const named = namedActions(space.names, space.start ?? 0);
      if (new Set(space.names.map(name => name.trim().toLowerCase())).size < space.names.length) {
        faults.add('/action_space/names', 'a name occurs twice (case does not count)');
      }
      return {
        space: named.space,
        description: { actions: named.names },
        accept: action => named.names[named.indexOf(action)],
        references: { random: randomPolicy(named) },
      };
    }
    case 'Text': {
      const maxLength = space.max_length ?? DEFAULT_ACTION_LENGTH;
      return {
        space: { type: 'Text', maxLength },
        description: { actionFormat: space.format ?? `a text of at most ${maxLength} characters` },
        accept: action => (typeof action === 'string' && action.length <= maxLength ? action : undefined),
      };
    }
    case 'Json': {
      const schema = compileSubset(space.schema, '/action_space/schema', faults);
      const json: Space = { type: 'Json', schema: schema as unknown as JsonObject };
      const check = actionCheck(json);
      return {
        space: json,
        description: {
          actionFormat: space.format ?? 'a JSON value that fits the schema of the action space',
        },
        accept: action => (check(action) === undefined ? action : undefined),
      };
    }
  }
}

function configSchema(given: JsonObject | undefined, maxSteps: number, faults: DefinitionFaults): TSchema {
  const own = objectSchema(given, '/config_schema', faults);
  return closed({ max_steps: stepsSetting(maxSteps), ...own.properties });
}

function objectSchema(given: JsonObject | undefined, pointer: string, faults: DefinitionFaults): TObject {
  if (given === undefined) return closed({});
  if (given.type !== 'object') {
    faults.add(`${pointer}/type`, 'must be object');
    return Type.Object({});
  }
  return compileSubset(given, pointer, faults) as TObject;
}
