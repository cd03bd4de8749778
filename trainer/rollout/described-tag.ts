import type { Json, JsonObject } from '../../shared/json.ts';
import type { ActionNames } from '../../shared/response.ts';
import { isEndName } from '../../shared/step-info.ts';
import type { Schemas } from '../client/operations.ts';
import { ServerUnavailable } from '../client/retry.ts';
import type { ServerPool } from '../client/servers.ts';
import type { PromptTask, TaskDescription } from '../prompts/prompt.ts';
import { drawnActions, spanned } from './drawn-actions.ts';
import type { Tag } from './tag.ts';

/** A tag with its environment's description under the tag's configuration. */
export interface DescribedTag {
  readonly tag: Tag;
  readonly description: TaskDescription;
  /** The actions of a discrete space; absent for free text. */
  readonly actionNames?: ActionNames;
  /** Actions are JSON, which answers write as text. */
  readonly jsonActions: boolean;
  /** The valid actions of each state are asked for, and responses hold one of them. */
  readonly constrained?: boolean;
  /** False for an environment without randomness, which rejects a seed. */
  readonly seedable: boolean;
  /** True if chance after the start has a seed that differs between the members of a group. */
  readonly hasDynamicsSeed: boolean;
  /** States can be copied. */
  readonly copyable: boolean;
  /** Copies can have new random streams, and states have names. */
  readonly reseedable: boolean;
  /** Names of the reference policies it has. */
  readonly references: readonly string[];
  /** Meaning of each `info.ended_by`. */
  readonly ends: { readonly [name: string]: string };
}

/**
 * Requests the description of each tag's environment, from every server that plays it.
 * @throws ServerProblem for an unknown environment or a wrong configuration; ServerUnavailable when none answers
 */
export function describeTags(servers: ServerPool, tags: readonly Tag[]): Promise<DescribedTag[]> {
  return Promise.all(tags.map(async tag => describedTag(tag, await described(servers, tag))));
}

async function described(servers: ServerPool, tag: Tag): Promise<Schemas['Environment']> {
  let server = servers.pick({ tag: tag.name });
  for (;;) {
    try {
      return await server.describe(tag.environmentId, tag.config);
    } catch (error) {
      if (!(error instanceof ServerUnavailable) || servers.servers.length === 1) throw error;
      if (!(await servers.anyThere(tag.name))) throw error;
    } finally {
      servers.done(server, { tag: tag.name });
    }
    server = servers.pick({ tag: tag.name, except: server });
  }
}

/** A tag with the server's document of its environment. */
function describedTag(tag: Tag, document: Schemas['Environment']): DescribedTag {
  const space = document.action_space.gymnasium as { readonly type: string; readonly start?: number };
  const { actions, example_action: example } = document;
  const examples = tag.actions ?? document.example_actions;
  if (tag.actions && space.type === 'Discrete') {
    throw new Error(
      `tags.${tag.name}.actions: ${document.env_id} has a discrete space, which names its actions itself`,
    );
  }
  const jsonActions = hasJsonActions(document);
  const drawn = examples ? undefined : drawnActionsOf(document);
  return {
    tag,
    description: {
      environmentId: document.env_id,
      instruction: document.instruction,
      legend: document.legend,
      actions,
      ...(examples && { exampleActions: examples.map(action => writtenAction(action as Json, jsonActions)) }),
      ...(jsonActions ? { jsonActions } : {}),
      ...(jsonActions && !examples ? { actionSchema: schemaOf(document, tag) } : {}),
      ...(drawn && { drawnActions: drawn.map(action => writtenAction(action, true)) }),
      ...(actions || examples ? {} : { exampleAction: writtenAction(example as Json, jsonActions) }),
      actionFormat: document.action_format,
      vocabulary: document.vocabulary,
    },
    actionNames:
      space.type === 'Discrete' && actions ? { names: actions, start: space.start ?? 0 } : undefined,
    jsonActions,
    seedable: document.capabilities.seed,
    hasDynamicsSeed: document.capabilities.seed && document.capabilities.snapshot,
    copyable: document.capabilities.snapshot,
    // Servers of earlier versions do not know the field.
    reseedable: document.capabilities.reseed === true,
    references: document.references.map(reference => reference.name),
    ends: endsIn(document.ends),
  };
}

const hasJsonActions = ({ action_space }: Schemas['Environment']): boolean =>
  !['Discrete', 'Text'].includes((action_space.gymnasium as { readonly type: string }).type);

const schemaOf = ({ action_space }: Schemas['Environment'], { numberSpan }: Tag): JsonObject => {
  const schema = action_space.json_schema as JsonObject;
  return numberSpan === undefined ? schema : (spanned(schema, numberSpan) as JsonObject);
};

/** JSON actions drawn from their schema, where the environment lists none. */
export function drawnActionsOf(document: Schemas['Environment']): readonly Json[] | undefined {
  const { example_actions, action_space } = document;
  if (!hasJsonActions(document) || example_actions) return undefined;
  return drawnActions(action_space.json_schema as JsonObject);
}

const RANDOM = 'random';

/** Most ends of an environment that a run keeps, and most characters of a meaning. */
const MAX_ENDS = 64;
const MAX_MEANING_LENGTH = 200;

/** Well-formed ends of a server's document; servers of earlier versions name none. */
function endsIn(ends: Schemas['Environment']['ends'] | undefined): DescribedTag['ends'] {
  const known = Object.entries(ends ?? {}).filter(
    ([name, meaning]) => isEndName(name) && typeof meaning === 'string',
  );
  return Object.fromEntries(
    known.slice(0, MAX_ENDS).map(([name, meaning]) => [name, meaning.slice(0, MAX_MEANING_LENGTH)]),
  );
}

/** True if random play is possible: the environment names or describes actions, its states list them, or it has a random reference policy. */
export function hasRandomPlayer(described: DescribedTag): boolean {
  const { actionNames, references, constrained = false } = described;
  const isNamed = actionNames !== undefined || playableActions(described) !== undefined;
  return isNamed || constrained || references.includes(RANDOM);
}

/** Actions from which random play draws: those of a schema where the environment has no random player. */
export const playableActions = ({
  description: { exampleActions, drawnActions },
  references,
}: DescribedTag): readonly string[] | undefined =>
  exampleActions ?? (references.includes(RANDOM) ? undefined : drawnActions);

/** An action as text in an answer. */
export function writtenAction(action: Json, isJson: boolean): string {
  return typeof action === 'string' && !isJson ? action : JSON.stringify(action);
}

/** Form of responses, the same for all tags of a run. */
export type ResponseSettings = Pick<PromptTask, 'responseLength' | 'think' | 'turnsLeft'>;

/** Input of the prompt of a tag. */
export function promptTask({ tag, description }: DescribedTag, response: ResponseSettings): PromptTask {
  return {
    description,
    maxTurns: tag.maxTurns,
    maxActionsPerTurn: tag.maxActionsPerTurn,
    maxActionsPerTrajectory: tag.maxActionsPerTrajectory,
    ...response,
  };
}
