import type { ServerPool } from '../../client/servers.ts';
import type { DescribedTag } from '../../rollout/described-tag.ts';
import { EnvironmentSession } from '../../rollout/environment-session.ts';

/**
 * Tags with constrained responses: where actions have no fixed names and an environment lists the valid ones of a state, those are
 * what a response may hold. Opens a session of each other tag to find out.
 */
export function withStateActions(
  servers: ServerPool,
  tags: readonly DescribedTag[],
  seed: number,
): Promise<DescribedTag[]> {
  return Promise.all(
    tags.map(async described => {
      const { tag, seedable, actionNames } = described;
      if (actionNames) return described;
      const spec = {
        environmentId: tag.environmentId,
        tag: tag.name,
        config: tag.config,
        options: tag.options,
        seed: seedable ? seed : undefined,
        groupName: `${tag.name}/actions`,
        validActions: true,
      };
      const [session] = await EnvironmentSession.openGroup(servers, spec, 1);
      await session.close();
      return session.validActions ? { ...described, constrained: true } : described;
    }),
  );
}
