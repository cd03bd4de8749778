import type { AdvantageSequence } from '../algorithms/advantages/estimator.ts';
import { estimateAdvantages } from '../algorithms/advantages/registry.ts';
import type { TrainingSequence } from '../policy/policy.ts';
import { type Episode, type EpisodeSample, episodeReturn, samplesOf } from '../rollout/episode.ts';
import { countOnes } from './update.ts';

/** One trainable sample with the episode it was cut from. */
interface Piece {
  readonly episode: Episode;
  readonly sample: EpisodeSample;
  readonly rewards: Float64Array;
  readonly turnEnds: readonly number[];
  readonly states: readonly string[];
}

export interface ExperienceSettings {
  readonly advantage: string;
  readonly gamma: number;
  readonly lambda: number;
  readonly turnLambda: number;
  readonly highLevelGamma: number;
  readonly stepWeight: number;
  readonly whiten: boolean;
  readonly rewardScale: number;
  /** Responses were sampled under the grammar named after their tag, and so is the loss taken. */
  readonly constrained?: boolean;
  /** Ids of the tokens whose entropy is rewarded, per tag; absent: every trained token. */
  readonly entropyTokens?: ReadonlyMap<string, ReadonlySet<number>>;
}

/**
 * Turns episodes into what the update trains on: rewards on tokens, advantages, value targets, entropy mask.
 * A turn's reward, penalty included, stands at its last sampled token. Where the returns were normalised, or an
 * episode was cut into several samples, every sample carries the whole return at its last sampled token instead.
 * Samples without a trained token are left out.
 * @param returns normalised return of each episode, absent where rewards stay as they are
 */
export function trainingSequences(
  episodes: readonly Episode[],
  settings: ExperienceSettings,
  returns?: ArrayLike<number>,
): TrainingSequence[] {
  const pieces = episodes.flatMap((episode, i) => piecesOf(episode, settings.rewardScale, returns?.[i]));
  if (pieces.length === 0) return [];
  const { advantages, returns: targets } = estimateAdvantages(
    settings.advantage,
    pieces.map(
      ({ episode, sample, rewards, turnEnds, states }): AdvantageSequence => ({
        mask: sample.mask,
        rewards,
        values: sample.values,
        turnEnds,
        states,
        groupId: episode.groupId,
        episodeId: episode.episodeId,
      }),
    ),
    settings,
  );
  return pieces.map(({ episode, sample }, i) => ({
    tokenIds: sample.tokenIds,
    mask: sample.mask,
    logProbs: sample.logProbs,
    advantages: Float32Array.from(advantages[i]),
    ...(sample.values ? { values: sample.values, returns: Float32Array.from(targets[i]) } : {}),
    ...(settings.constrained ? { grammar: episode.tag } : {}),
    ...(settings.entropyTokens
      ? { entropyMask: tokensIn(sample, settings.entropyTokens.get(episode.tag) ?? new Set()) }
      : {}),
  }));
}

function piecesOf(episode: Episode, scale: number, normalised: number | undefined): Piece[] {
  const whole = normalised ?? scale * episodeReturn(episode);
  const samples = samplesOf(episode);
  const atTurns = normalised === undefined && samples.length === 1;
  return samples.flatMap((sample, index) => {
    if (countOnes(sample.mask) === 0) return [];
    const turns = episode.turns.filter(
      turn => (turn.sample ?? 0) === index && sample.mask[turn.tokens[1] - 1] === 1,
    );
    const turnEnds = turns.map(turn => turn.tokens[1] - 1);
    const rewards = new Float64Array(sample.tokenIds.length);
    if (!atTurns) rewards[turnEnds.at(-1)!] = whole;
    else {
      let last = turnEnds[0];
      for (const turn of episode.turns) {
        const end = turn.tokens[1] - 1;
        if (turn.tokens[1] > turn.tokens[0] && sample.mask[end] === 1) last = end;
        rewards[last] += scale * (turn.reward + turn.penalty);
      }
    }
    return [{ episode, sample, rewards, turnEnds, states: turns.map(turn => turn.state) }];
  });
}

function tokensIn(sample: EpisodeSample, ids: ReadonlySet<number>): Uint8Array {
  return sample.mask.map((on, t) => (on && ids.has(sample.tokenIds[t]) ? 1 : 0));
}
