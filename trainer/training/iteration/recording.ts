import type { GroupRecord } from '../../../shared/run-folder/run-files.ts';
import { mean } from '../../algorithms/statistics.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import { recordsTrajectories } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Filtered, ScoredGroup } from '../../data/filtering.ts';
import { type SampleScores, scoreEpisodes } from '../../data/scoring.ts';
import type { Policy } from '../../policy/policy.ts';
import { type Episode, episodeReturn, samplesOf } from '../../rollout/episode.ts';
import { appendGroupsRow } from '../../tracking/group-rows.ts';
import type { TrajectoryWriter } from '../../tracking/trajectories.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';

/** Most tokens that are scored only to record their entropies; further episodes are written without. */
const SCORED_TOKENS = 4096;

export interface RecordingParts {
  readonly settings: RunSettings;
  readonly run: Pick<RunFolder, 'groups'>;
  readonly policy: Pick<Policy, 'score'>;
  readonly trajectories: TrajectoryWriter;
}

/** Episodes of an iteration and the training data made from them. */
export interface IterationRecord {
  readonly step: number;
  readonly episodes: readonly Episode[];
  readonly filtered: Filtered;
  readonly sequences: readonly TrainingSequence[];
  readonly scores: SampleScores | undefined;
}

/**
 * Scores for the record of an iteration: those that there are, else of as many episodes as have {@link SCORED_TOKENS} tokens
 * together. Undefined when the iteration is not recorded.
 */
export async function scoresForRecord(
  { settings, policy }: RecordingParts,
  step: number,
  episodes: readonly Episode[],
  scores: SampleScores | undefined,
): Promise<SampleScores | undefined> {
  // A Tinker server returns no entropies.
  const hasNone = settings.policy.runtime === 'tinker';
  if (scores || hasNone || !recordsTrajectories(settings, step)) return scores;
  const chosen: Episode[] = [];
  let tokens = 0;
  for (const episode of episodes) {
    for (const { tokenIds } of samplesOf(episode)) tokens += tokenIds.length;
    if (tokens > SCORED_TOKENS) break;
    chosen.push(episode);
  }
  return scoreEpisodes(policy, chosen, settings);
}

/** Writes the groups of an iteration, and where they are due its trajectories with what training made of each token. */
export function recordIteration(parts: RecordingParts, record: IterationRecord): void {
  const { settings, run, trajectories } = parts;
  const { step, episodes, filtered, sequences, scores } = record;
  const kept = new Set(filtered.kept.flatMap(group => group.map(({ episode }) => episode)));
  const groups = filtered.scored.map(group => groupRecord(group, kept.has(group.episodes[0])));
  const { score, strategy } = settings.algorithm.filter;
  appendGroupsRow(run.groups, { step, score, strategy, groups });
  if (!recordsTrajectories(settings, step)) return;
  const groupOf = new Map(
    filtered.scored.flatMap(({ episodes }, i) => episodes.map(episode => [episode, groups[i]])),
  );
  // A sequence to train on holds the token ids of its sample as they are.
  const sequenceOf = new Map(sequences.map(sequence => [sequence.tokenIds, sequence]));
  trajectories.write('train', step, episodes, {
    group: episode => groupOf.get(episode),
    tokens(sample) {
      const sequence = sequenceOf.get(sample.tokenIds);
      return {
        entropies: countOnes(sample.lossMask) > 0 ? scores?.get(sample)?.entropies : undefined,
        advantages: sequence?.advantages,
        values: sequence?.values,
        returns: sequence?.returns,
      };
    },
  });
}

function groupRecord({ episodes, score, std }: ScoredGroup, kept: boolean): GroupRecord {
  const [first] = episodes;
  return {
    group_id: first.groupId,
    tag: first.tag,
    seed: first.seed,
    size: episodes.length,
    successes: episodes.filter(({ success }) => success).length,
    mean: mean(episodes.map(episodeReturn)),
    std,
    score,
    kept,
  };
}
