import { join } from 'node:path';
import { type Episode, episodeReturn, samplesOf } from '../rollout/episode.ts';
import { writeJsonLines } from './jsonlines.ts';

/**
 * Writes episodes whole, one a line: every turn with its state, response, actions, rewards and penalty, and every
 * sample with token ids, behaviour log-probabilities and policy versions. A file of the same name is replaced.
 * @returns the file
 */
export function writeTrajectories(
  folder: string,
  kind: 'train' | 'validation',
  step: number,
  episodes: readonly Episode[],
): string {
  const file = join(folder, `${kind}-${String(step).padStart(6, '0')}.jsonl`);
  writeEpisodes(file, episodes);
  return file;
}

/** {@link writeTrajectories} into a file of any name. */
export function writeEpisodes(file: string, episodes: readonly Episode[]): void {
  writeJsonLines(file, episodes.map(trajectoryRecord));
}

/** An episode as it stands in trajectory files; keys as in RAGEN. */
export function trajectoryRecord(episode: Episode): { [key: string]: unknown } {
  return {
    episode_id: episode.episodeId,
    env_id: episode.environmentId,
    tag: episode.tag,
    group_id: episode.groupId,
    seed: episode.seed,
    server: episode.server,
    success: episode.success,
    terminated: episode.terminated,
    truncated: episode.truncated,
    return: episodeReturn(episode),
    turns: episode.turns.map(turn => ({
      state: turn.state,
      actions_left: turn.actionsLeft,
      actions: turn.actions,
      reward: turn.reward,
      penalty: turn.penalty,
      info: turn.info,
      llm_response: turn.response,
      llm_raw_response: turn.rawResponse,
      tokens: turn.tokens,
      sample: turn.sample ?? 0,
    })),
    samples: samplesOf(episode).map(sample => ({
      token_ids: sample.tokenIds,
      mask: sample.mask,
      log_probs: sample.logProbs,
      versions: sample.versions,
    })),
  };
}
