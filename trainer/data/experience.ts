import { camelized } from '../../shared/camelized.ts';
import type { AdvantageSequence, AdvantageSettings } from '../algorithms/advantages/estimator.ts';
import { advantageEstimator, estimateAdvantages } from '../algorithms/advantages/registry.ts';
import { lengthReweight, softReweight, zeroTaskAdvantage } from '../algorithms/advantages/reweight.ts';
import { offPolicyWeights } from '../algorithms/losses/off-policy.ts';
import type { KlEstimator, OffPolicySettings } from '../algorithms/losses/settings.ts';
import { penalizeRewards } from '../algorithms/rewards/kl-penalty.ts';
import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import { hasCrossEntropy, lossSettings } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import {
  countedTurns,
  type Episode,
  type EpisodeSample,
  type RewardSums,
  samplesOf,
  type Turn,
} from '../rollout/episode.ts';
import {
  episodeComponents,
  type RewardWeights,
  trainedReturn,
  trainedReward,
  turnStatistics,
} from './episode-metrics.ts';
import type { LaterScores, SampleLogProbs } from './scoring.ts';
import { maskOf, observationWeights } from './token-weights.ts';

/** A trained episode. */
export interface KeptEpisode {
  readonly episode: Episode;
  /** Its normalized return; absent if rewards are not normalized. */
  readonly normalized?: number;
}

/** One trainable sample with the episode it was cut from. */
interface Piece {
  readonly episode: Episode;
  readonly sample: EpisodeSample;
  readonly rewards: Float64Array;
  /** Turns that the sample trains. */
  readonly turns: readonly Turn[];
  readonly turnEnds: readonly number[];
  readonly states: readonly string[];
  readonly validTurns: readonly boolean[];
  readonly turnNodes: readonly string[];
  /** A last token carries the return of the whole episode: returns are normalized, or samples stand alone. */
  readonly wholeReturn: boolean;
}

type EstimatorKey =
  | 'gamma'
  | 'lambda'
  | 'highLevelGamma'
  | 'stepWeight'
  | 'whiten'
  | 'stdNormalize'
  | 'acrossTurns';
/** Settings of single estimators. */
type OwnKey = 'handleZeroTail' | 'decay' | 'episodeAgents' | 'earlyWeight' | 'graph';

export interface ExperienceSettings
  extends Pick<AdvantageSettings, EstimatorKey>,
    Partial<Pick<AdvantageSettings, OwnKey>> {
  readonly advantage: string;
  readonly turnLambda: number;
  readonly acrossSamples: boolean;
  readonly rewardScale: number;
  /** Weights of reward components; the plain reward when absent. */
  readonly rewardWeights?: RewardWeights;
  /** The loss is a mean over tokens, so token weights need a mean of 1. */
  readonly tokenMean?: boolean;
  /** States with different numbers of remaining actions are different. */
  readonly withActionsLeft?: boolean;
  /** Correction of the loss for tokens of older weights, if there is one. */
  readonly offPolicy?: OffPolicySettings;
  /** Weights in the cross-entropy of sampled tokens and of observed ones after the first response; none when absent. */
  readonly crossEntropy?: { readonly sampled: number; readonly observations: number };
  /** Rewards are at the ends of their turns; false: all at the end of the last. */
  readonly rewardAtTurns: boolean;
  /** Subtracted from the reward of every sampled token; needs the reference's log-probabilities. */
  readonly klInReward?: { readonly estimator: KlEstimator; readonly coefficient: number };
  /** Changes to the advantages, in this order. */
  readonly softReweight: boolean;
  readonly lengthWeight: boolean;
  readonly zeroTask: boolean;
  /** Episodes with a truncated response have weight 0. */
  readonly overlongMask: boolean;
  /** Episodes without success only enter the advantages of others. */
  readonly onlySuccesses?: boolean;
  /** Responses were sampled under masks, and the loss uses them too: see {@link maskOf}. */
  readonly constrained?: boolean;
  /** Ids of the tokens that get the entropy bonus, per tag; absent: every trained token. */
  readonly entropyTokens?: ReadonlyMap<string, ReadonlySet<number>>;
}

/**
 * Turns episodes into the update's training data: rewards on tokens, advantages, value targets, entropy mask. A turn's
 * reward, penalty included, is at its last sampled token. If the settings say so, returns were normalized, or an
 * episode has several samples that stand alone, every sample carries the whole return at its last sampled token instead.
 * Samples without a trained token are left out.
 */
export function trainingSequences(
  episodes: readonly KeptEpisode[],
  settings: ExperienceSettings,
  later: LaterScores = {},
): TrainingSequence[] {
  const { reference, proximal } = later;
  const pieces = episodes.flatMap(({ episode, normalized }) => piecesOf(episode, settings, normalized));
  if (pieces.length === 0) return [];
  if (advantageEstimator(settings.advantage).comparesSuccess) requireSuccess(settings.advantage, pieces);
  const sequences = pieces.map(piece => advantageSequence(piece, settings, later));
  const estimated = estimateAdvantages(settings.advantage, sequences, {
    ...settings,
    ...(settings.rewardWeights ? { components: settings.rewardWeights } : {}),
    ...(later.baselines ? { baselines: later.baselines } : {}),
  });
  let { advantages } = estimated;
  if (settings.softReweight) advantages = softReweight(advantages, sequences);
  if (settings.lengthWeight) advantages = lengthReweight(advantages, sequences);
  if (settings.zeroTask) advantages = zeroTaskAdvantage(advantages);
  const byTurns = pieces.map(({ sample: { lossMask }, turnEnds }, i) => ({
    lossMask,
    turnEnds,
    advantages: advantages[i],
  }));
  later.onEstimate?.({
    ...estimated,
    metrics: { ...estimated.metrics, ...turnStatistics(byTurns), ...demonstrationMetric(pieces, later) },
  });
  const weights = estimated.weights && shareWeights(estimated.weights, pieces, settings.tokenMean ?? false);
  const sequenceOf = ({ episode, sample }: Piece, i: number): TrainingSequence => ({
    tokenIds: sample.tokenIds,
    lossMask: sample.lossMask,
    logProbs: sample.logProbs,
    advantages: Float32Array.from(advantages[i]),
    ...valueTargets(valuesOf(sample, later), estimated.returns[i]),
    ...(reference ? { referenceLogProbs: known(reference, sample) } : {}),
    ...(later.undemonstrated?.has(sample) ? { klWeights: new Float32Array(sample.lossMask.length) } : {}),
    ...(weights ? { policyGradientWeights: weights[i], klWeights: weights[i] } : {}),
    ...(proximal ? { proximalLogProbs: known(proximal, sample) } : {}),
    ...maskOf(sample, episode, settings.constrained),
    ...(settings.crossEntropy
      ? { crossEntropyWeights: crossEntropyWeights(sample, settings.crossEntropy) }
      : {}),
    ...(settings.entropyTokens
      ? { entropyMask: tokensIn(sample, settings.entropyTokens.get(episode.tag) ?? new Set()) }
      : {}),
    ...(settings.overlongMask && wasCut(episode) ? { weight: 0 } : {}),
  });
  return pieces.flatMap((piece, i) =>
    settings.onlySuccesses && !piece.episode.success ? [] : [sequenceOf(piece, i)],
  );
}

/** Weights of the loss's streams: the estimator's, or with a mean of 1 over the trained tokens of the batch. */
function shareWeights(
  weights: readonly Float64Array[],
  pieces: readonly Piece[],
  toMean: boolean,
): Float32Array[] {
  let sum = 0;
  let tokens = 0;
  pieces.forEach(({ sample: { lossMask } }, i) => {
    for (let t = 0; t < lossMask.length; t++) {
      if (!lossMask[t]) continue;
      sum += weights[i][t];
      tokens++;
    }
  });
  const scale = toMean && sum > 0 ? tokens / sum : 1;
  return weights.map(own => Float32Array.from(own, weight => scale * weight));
}

function advantageSequence(
  { episode, sample, rewards, turns, turnEnds, states, validTurns, turnNodes, wholeReturn }: Piece,
  settings: ExperienceSettings,
  later: LaterScores,
): AdvantageSequence {
  const { lossMask, logProbs } = sample;
  const { reference } = later;
  const { klInReward, rewardWeights, offPolicy, withActionsLeft = false } = settings;
  return {
    lossMask: lossMask,
    rewards:
      klInReward && reference
        ? penalizeRewards(
            { lossMask, rewards, logProbs, referenceLogProbs: known(reference, sample) },
            klInReward.estimator,
            klInReward.coefficient,
          )
        : rewards,
    values: valuesOf(sample, later),
    ...(wholeReturn ? {} : { bootstrapValue: later.bootstrap?.get(episode) }),
    turnEnds,
    states,
    validTurns,
    success: episode.success,
    ...finalStateOf(episode, withActionsLeft),
    ...(episode.nodes ? { turnNodes, leaf: episode.nodes.at(-1)! } : {}),
    ...(episode.continuations ? { vine: vineTurns(episode, turns, settings) } : {}),
    groupId: episode.groupId,
    episodeId: episode.episodeId,
    ...(rewardWeights ? { components: episodeComponents(episode, rewardWeights) } : {}),
    logProbs: later.proximal ? known(later.proximal, sample) : logProbs,
    ...(reference ? { referenceLogProbs: known(reference, sample) } : {}),
    ...(later.proximal && offPolicy
      ? { rolloutWeights: rolloutWeights(sample, later.proximal, offPolicy) }
      : {}),
    ...(later.squares ? { squaredProbabilities: known(later.squares, sample) } : {}),
    ...agentOf(episode),
  };
}

/** Rewards of an episode's turns and returns of its continuations, weighted and scaled as in training. */
function vineTurns(
  { turns, continuations = [] }: Episode,
  trained: readonly Turn[],
  { rewardScale, rewardWeights = null }: ExperienceSettings,
): NonNullable<AdvantageSequence['vine']> {
  const earned = (sums: RewardSums) => rewardScale * trainedReward(sums, rewardWeights);
  return {
    rewards: turns.map(earned),
    continuations: continuations.map(others => others.map(earned)),
    trained: trained.map(turn => turns.indexOf(turn)),
  };
}

function finalStateOf(
  { finalStateKey, finalState, turns }: Episode,
  withActionsLeft: boolean,
): Pick<AdvantageSequence, 'finalState'> {
  const state = finalStateKey ?? finalState;
  const last = turns.at(-1);
  if (state === undefined || !last) return {};
  return {
    finalState: stateName(state, withActionsLeft ? last.actionsLeft - last.actions.length : undefined),
  };
}

/** Name of a state for estimators that compare states. */
const stateName = (state: string, actionsLeft: number | undefined): string =>
  actionsLeft === undefined ? state : `${actionsLeft} left\n${state}`;

/** @throws RangeError where an environment reports success for none of its episodes */
function requireSuccess(name: string, pieces: readonly Piece[]): void {
  for (const own of Map.groupBy(pieces, ({ episode }) => episode.environmentId).values()) {
    const reports = own.some(({ episode }) =>
      episode.turns.some(({ info }) => typeof info.success === 'boolean'),
    );
    if (reports) continue;
    throw new RangeError(
      `algorithm.advantage: ${name} goes for success, and ${own[0].episode.environmentId} reports none in info.success: choose gagpo or gigpo`,
    );
  }
}

function demonstrationMetric(
  pieces: readonly Piece[],
  { undemonstrated }: LaterScores,
): Record<string, number> {
  if (undemonstrated === undefined) return {};
  const without = pieces.filter(({ sample }) => undemonstrated.has(sample)).length;
  return { 'train/undemonstrated': without / pieces.length };
}

function rolloutWeights(
  sample: EpisodeSample,
  proximal: SampleLogProbs,
  settings: OffPolicySettings,
): Float64Array {
  const { lossMask, logProbs: behaviorLogProbs } = sample;
  return offPolicyWeights(
    { lossMask, proximalLogProbs: known(proximal, sample), behaviorLogProbs },
    settings,
  );
}

/** Agent and scene of the episode, from `info` of its last step; the tag where that names none. */
function agentOf({ turns, tag }: Episode): Pick<AdvantageSequence, 'agent' | 'sceneId'> {
  const { agent, scene } = turns.at(-1)?.info ?? {};
  const named = typeof scene === 'string' || typeof scene === 'number';
  return { agent: typeof agent === 'string' ? agent : tag, ...(named ? { sceneId: scene } : {}) };
}

function crossEntropyWeights(
  { lossMask, repeated = 0 }: EpisodeSample,
  { sampled, observations }: NonNullable<ExperienceSettings['crossEntropy']>,
): Float32Array {
  const observed = observationWeights(lossMask, observations, repeated);
  return observed.map((weight, t) => (lossMask[t] ? sampled : weight));
}

/** Values of a separate critic, or those sampled with the tokens. */
function valuesOf(sample: EpisodeSample, { values }: LaterScores): Float32Array | undefined {
  return values ? known(values, sample) : sample.values;
}

function valueTargets(
  values: Float32Array | undefined,
  returns: ArrayLike<number>,
): Pick<TrainingSequence, 'values' | 'returns'> {
  return values ? { values, returns: Float32Array.from(returns) } : {};
}

function known(scores: ReadonlyMap<EpisodeSample, Float32Array>, sample: EpisodeSample): Float32Array {
  const found = scores.get(sample);
  if (!found) throw new Error('a sample to train on was not scored');
  return found;
}

function wasCut({ turns }: Episode): boolean {
  return turns.some(({ finishReason }) => finishReason === 'length' || finishReason === 'context');
}

function piecesOf(
  episode: Episode,
  {
    rewardScale: scale,
    rewardAtTurns,
    rewardWeights = null,
    withActionsLeft = false,
    acrossSamples,
  }: Pick<
    ExperienceSettings,
    'rewardScale' | 'rewardAtTurns' | 'rewardWeights' | 'withActionsLeft' | 'acrossSamples'
  >,
  normalized: number | undefined,
): Piece[] {
  const nodes = episode.nodes ?? [];
  const whole = normalized ?? scale * trainedReturn(episode, rewardWeights);
  const samples = samplesOf(episode);
  const wholeReturn = normalized !== undefined || (samples.length > 1 && !acrossSamples);
  const rewards = samples.map(({ tokenIds }) => new Float64Array(tokenIds.length));
  const isTrained = ({ tokens: [start, end], sample = 0 }: Turn) =>
    end > start && samples[sample].lossMask[end - 1] === 1;
  const trained = episode.turns.filter(isTrained);
  const earn = ({ tokens, sample = 0 }: Turn, reward: number) => {
    rewards[sample][tokens[1] - 1] += reward;
  };
  if (trained.length === 0) return [];
  if (rewardAtTurns && !wholeReturn) {
    let last = trained[0];
    for (const turn of countedTurns(episode)) {
      if (isTrained(turn)) last = turn;
      earn(last, scale * trainedReward(turn, rewardWeights));
    }
  } else {
    const ends = acrossSamples ? trained.slice(-1) : lastTurns(trained);
    for (const turn of ends) earn(turn, whole);
  }
  return samples.flatMap((sample, index) => {
    const turns = trained.filter(turn => (turn.sample ?? 0) === index);
    if (turns.length === 0) return [];
    return [
      {
        episode,
        sample,
        rewards: rewards[index],
        turns,
        turnEnds: turns.map(turn => turn.tokens[1] - 1),
        turnNodes: turns.map(turn => nodes[episode.turns.indexOf(turn)]),
        states: turns.map(({ stateKey, state, actionsLeft }) =>
          stateName(stateKey ?? state, withActionsLeft ? actionsLeft : undefined),
        ),
        validTurns: turns.map(({ actions }) => actions.length > 0),
        wholeReturn,
      },
    ];
  });
}

/** The last turn of each sample. */
function lastTurns(turns: readonly Turn[]): Turn[] {
  return [...new Map(turns.map(turn => [turn.sample ?? 0, turn])).values()];
}

function tokensIn(sample: EpisodeSample, ids: ReadonlySet<number>): Uint8Array {
  return sample.lossMask.map((on, t) => (on && ids.has(sample.tokenIds[t]) ? 1 : 0));
}

/** @param actionTokens ids of the tokens that actions are made of, per tag */
export function experienceSettings(
  settings: RunSettings,
  actionTokens: ReadonlyMap<string, ReadonlySet<number>>,
): ExperienceSettings {
  const { rollout, loss } = settings;
  const { graph, kl_in_reward, ...algorithm } = settings.algorithm;
  const { offPolicy } = lossSettings(settings);
  const { gamma, success_value, ...graphWeights } = graph;
  return {
    ...camelized(algorithm),
    ...(offPolicy.kind === 'none' ? {} : { offPolicy }),
    turnLambda: algorithm.turn_lambda ?? algorithm.lambda,
    rewardAtTurns: algorithm.reward_at === 'turns',
    softReweight: algorithm.soft_advantage_reweight,
    lengthWeight: algorithm.advantage_length_weight,
    zeroTask: algorithm.zero_task_advantage,
    ...(algorithm.train_on === 'successes' ? { onlySuccesses: true } : {}),
    rewardWeights: algorithm.reward_components,
    handleZeroTail: algorithm.zero_tail,
    withActionsLeft: rollout.state_key === 'observation_and_left',
    tokenMean: loss.aggregation === 'token_mean',
    graph: {
      ...camelized(graphWeights),
      ...(gamma === null ? {} : { gamma }),
      ...(success_value === null ? {} : { successValue: success_value }),
    },
    ...(hasCrossEntropy(loss)
      ? {
          crossEntropy: {
            sampled: loss.policy === 'cross_entropy' ? 1 : loss.cross_entropy.sampled,
            observations: loss.cross_entropy.observations,
          },
        }
      : {}),
    constrained: rollout.constrained,
    ...(kl_in_reward.coefficient > 0 ? { klInReward: kl_in_reward } : {}),
    ...(algorithm.entropy_on === 'actions' ? { entropyTokens: actionTokens } : {}),
  };
}
