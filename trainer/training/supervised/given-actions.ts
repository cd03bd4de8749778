import type { Json } from '../../../shared/json.ts';
import { canonicalJson } from '../../../shared/run-folder/signed-result.ts';
import { fits } from '../../../shared/schema/check.ts';
import type { RunSettings } from '../../config/settings.ts';
import { type Agent, nameOf } from '../../rollout/agents/agent.ts';
import { type DescribedTag, writtenAction } from '../../rollout/described-tag.ts';
import type { Episode } from '../../rollout/episode.ts';
import { NO_SAMPLING } from '../../rollout/episode-agent.ts';
import { readGivenJsonLines } from '../../tracking/jsonlines.ts';
import type { RunContext } from '../setup/run-context.ts';

/** A demonstration as the actions of an episode, one a turn. */
export interface GivenEpisode {
  /** File and line. */
  readonly place: string;
  /** Environment of the run; absent: the only one that it trains in. */
  readonly tag?: string;
  /** Seed of the level. */
  readonly seed: number;
  readonly actions: readonly Json[];
}

/**
 * Reads demonstrations from JSON Lines files, `{"seed", "actions": […], "tag"?}` a line; other keys are ignored.
 * @returns undefined for files of conversations
 * @throws Error naming the file and line of a faulty one, or where the files have both forms
 */
export function readGivenEpisodes(files: readonly string[]): readonly GivenEpisode[] | undefined {
  const lines = files.flatMap(file =>
    readGivenJsonLines(file).map(({ line, value }) => ({
      place: `${file}:${line}`,
      value: Object(value) as object,
    })),
  );
  if (lines.length === 0 || !lines.some(({ value }) => 'actions' in value)) return undefined;
  return lines.map(({ place, value }) => {
    const { tag, seed, actions } = value as { readonly [key: string]: unknown };
    if (!Array.isArray(actions) || actions.length === 0) {
      throw new Error(
        `${place}: a demonstration has a list of \`actions\`, as the lines around it, at least one`,
      );
    }
    if (!Number.isSafeInteger(seed) || (seed as number) < 0) {
      throw new Error(
        `${place}: \`seed\` is the seed of the episode, a whole number from 0, got ${JSON.stringify(seed)}`,
      );
    }
    if (tag !== undefined && typeof tag !== 'string') {
      throw new Error(`${place}: \`tag\` names an environment of the run, got ${JSON.stringify(tag)}`);
    }
    return { place, seed: seed as number, actions, ...(tag === undefined ? {} : { tag }) };
  });
}

/**
 * Plays the given actions through the prompts of the run, one a turn. An episode that continues after its last action is left there.
 * @throws Error naming the demonstration that cannot be played
 */
export async function playGivenEpisodes(
  { collector, tags }: Pick<RunContext, 'collector' | 'tags'>,
  given: readonly GivenEpisode[],
  settings: RunSettings,
  signal: AbortSignal,
): Promise<{ readonly episodes: readonly Episode[]; readonly warnings: readonly string[] }> {
  const held: (readonly Json[])[] = [];
  const plans = given.map((episode, groupId) => {
    const described = tagOf(episode, tags, settings);
    held.push(heldActions(episode, described, settings.rollout.constrained));
    return { groupId, tag: described.tag.name, seed: episode.seed, size: 1 };
  });
  const agent: Agent = {
    async respond({ episode }) {
      const action = held[episode.groupId][episode.turn - 1];
      const isOver = action === undefined;
      const text = episode.compose(isOver ? [] : [nameOf(action, episode)]);
      return { text, finishReason: 'stop', exploratory: isOver };
    },
    release() {},
  };
  const { episodes, dropped } = await collector.collect(plans, {
    agent,
    sampling: NO_SAMPLING,
    samplingSeed: 0,
    signal,
  });
  const warnings = dropped.map(
    ({ plan, error }) => `${given[plan.groupId].place}: left out, its environment failed: ${error.message}`,
  );
  const failed = episodes.filter(({ success }) => !success);
  if (failed.length > 0) {
    const { place, actions } = given[failed[0].groupId];
    warnings.push(
      `${failed.length} of ${episodes.length} demonstrations did not succeed, the first in ${place} after ${Math.min(actions.length, failed[0].turns.length)} of ${actions.length} actions: with its seed the environment may have changed since`,
    );
  }
  return { episodes, warnings };
}

/** @throws Error for an environment that the run does not train in, or that has no seeds */
function tagOf(
  { place, tag }: GivenEpisode,
  tags: readonly DescribedTag[],
  { train_tags: trained }: RunSettings,
): DescribedTag {
  const name = tag ?? (trained.length === 1 ? trained[0] : undefined);
  const described = tags.find(one => one.tag.name === name && trained.includes(one.tag.name));
  if (!described) {
    throw new Error(
      `${place}: \`tag\` is ${tag === undefined ? 'missing' : JSON.stringify(tag)}; the run trains in ${trained.join(', ')}`,
    );
  }
  if (described.seedable) return described;
  throw new Error(
    `${place}: ${described.tag.environmentId} takes no seeds, so a demonstration cannot be played again: give conversations`,
  );
}

/**
 * The actions of a demonstration, JSON with its keys in the order of the listed actions.
 * @throws Error for an action that responses are not allowed to hold
 */
function heldActions(
  { place, actions }: GivenEpisode,
  { tag, description, actionNames, jsonActions }: DescribedTag,
  constrained: boolean,
): readonly Json[] {
  const { actionSchema } = description;
  for (const action of constrained && actionSchema ? actions : []) {
    if (fits(actionSchema!, action)) continue;
    throw new Error(
      `${place}: ${JSON.stringify(action)} does not fit the schema of the actions of ${tag.environmentId}, to which rollout.constrained holds responses`,
    );
  }
  const listed = actionNames?.names ?? (constrained ? description.exampleActions : undefined);
  if (!listed) return actions;
  const known = new Map(
    listed.map(text => (jsonActions ? [canonicalJson(JSON.parse(text)), text] : [text, text])),
  );
  return actions.map(action => {
    const name = typeof action === 'number' ? actionNames?.names[action - actionNames.start] : undefined;
    const found = known.get(jsonActions ? canonicalJson(action) : (name ?? writtenAction(action, false)));
    if (found !== undefined) return jsonActions ? (JSON.parse(found) as Json) : action;
    const remedy = actionNames
      ? `its actions are ${listed.slice(0, 8).join(', ')}`
      : `rollout.constrained holds responses to the listed actions: add it to tags.${tag.name}.actions`;
    throw new Error(`${place}: ${JSON.stringify(action)} is no action of ${tag.environmentId}; ${remedy}`);
  });
}
