import type { ActionNames } from '../../shared/response.ts';
import type { Schemas } from '../client/operations.ts';
import type { ServerPool } from '../client/servers.ts';
import type { PromptTask, TaskDescription } from '../prompts/prompt.ts';
import type { Tag } from './tag.ts';

/** A tag with what its environment says of itself under the tag's configuration. */
export interface DescribedTag {
  readonly tag: Tag;
  readonly description: TaskDescription;
  /** The actions of a discrete space; absent for free text. */
  readonly actionNames?: ActionNames;
  /** False for an environment that draws nothing and refuses a seed. */
  readonly seedable: boolean;
  /** Names of the reference policies it has. */
  readonly references: readonly string[];
}

/**
 * Asks a server about the environments of the tags.
 * @throws ServerProblem for an unknown environment or a wrong configuration
 */
export function describeTags(servers: ServerPool, tags: readonly Tag[]): Promise<DescribedTag[]> {
  const [server] = servers.servers;
  return Promise.all(
    tags.map(async tag => describedTag(tag, await server.describe(tag.environmentId, tag.config))),
  );
}

/** A tag with the server's document of its environment. */
export function describedTag(tag: Tag, document: Schemas['Environment']): DescribedTag {
  const space = document.action_space.gymnasium as { readonly type: string; readonly start?: number };
  const { actions } = document;
  return {
    tag,
    description: {
      environmentId: document.env_id,
      instruction: document.instruction,
      legend: document.legend,
      actions,
      actionFormat: document.action_format,
      vocabulary: document.vocabulary,
    },
    actionNames:
      space.type === 'Discrete' && actions ? { names: actions, start: space.start ?? 0 } : undefined,
    seedable: document.capabilities.seed,
    references: document.references.map(reference => reference.name),
  };
}

/** How responses are to be, the same for all tags of a run. */
export interface ResponseSettings {
  /** Longest response in tokens. */
  readonly responseLength: number;
  readonly think: boolean;
}

/** What the prompt of a tag is made from. */
export function promptTask({ tag, description }: DescribedTag, response: ResponseSettings): PromptTask {
  return {
    description,
    maxTurns: tag.maxTurns,
    maxActionsPerTurn: tag.maxActionsPerTurn,
    maxActionsPerTrajectory: tag.maxActionsPerTrajectory,
    ...response,
  };
}
