import { camelized } from '../../shared/camelized.ts';
import { advantageEstimator } from '../algorithms/advantages/registry.ts';
import type { EarlyStoppingSettings } from '../algorithms/filters/early-stopping.ts';
import type { MonitorSettings } from '../algorithms/filters/metric-monitor.ts';
import type { FilterSettings } from '../algorithms/filters/settings.ts';
import { usesProximal } from '../algorithms/losses/inputs.ts';
import { policyLoss } from '../algorithms/losses/registry.ts';
import type { LossSettings, OffPolicySettings } from '../algorithms/losses/settings.ts';
import type { SamplingDistribution } from '../generation/generation.ts';
import { changedSamplingFields } from '../generation/remote/engine-client.ts';
import type { PrefixPoolSettings } from '../rollout/branching/prefix.ts';
import type { TreePlan, VinePlan } from '../rollout/branching/tree-plan.ts';
import { apportion, curriculumShares } from '../rollout/levels.ts';
import type { sampling } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

/**
 * Groups of each training tag in an iteration, counted from 1.
 * @param groups their number, where it is not a whole iteration's
 */
export function groupsPerTag(
  settings: RunSettings,
  step: number,
  groups = settings.rollout.env_groups,
): { readonly tag: string; readonly groups: number }[] {
  const { n_groups, curriculum } = settings.rollout;
  const tags = settings.train_tags;
  const named = Object.keys(n_groups).length > 0;
  if (!curriculum && !named) return splitGroups(tags, groups);
  const weights = curriculum ? curriculumShares(curriculum, tags, step) : tags.map(tag => n_groups[tag]);
  return apportion(weights, groups).map((count, i) => ({ tag: tags[i], groups: count }));
}

/** Shape of the trees of training groups; undefined where episodes do not branch. */
export function treePlan({ rollout: { tree, luck } }: Pick<RunSettings, 'rollout'>): TreePlan | undefined {
  return tree === null ? undefined : { ...tree, freshLuck: luck === 'fresh' };
}

/** Plan of the continuations that value histories; undefined where none do. */
export function vinePlan({ rollout: { vine, luck } }: Pick<RunSettings, 'rollout'>): VinePlan | undefined {
  return vine === null ? undefined : { ...vine, freshLuck: luck === 'fresh' };
}

/** Settings for episodes that later ones continue; undefined where none do. */
export function prefixPoolSettings({
  rollout,
}: Pick<RunSettings, 'rollout'>): PrefixPoolSettings | undefined {
  const { prefix } = rollout;
  if (prefix === null) return undefined;
  const { schedule, share, low, high, directions, max_age: maxAge, reverse_over: reverseOver } = prefix;
  return {
    ...{ schedule, share, low, high, directions, maxAge, reverseOver },
    remaining: { ratio: prefix.remaining_ratio, cap: prefix.remaining_cap },
    taken: { ratio: prefix.prefix_ratio, cap: prefix.prefix_cap },
    capacity: prefix.pool,
    controller: prefix.adaptive,
  };
}

/** Splits groups over tags as evenly as possible; the first tags get the remainder. */
export function splitGroups(
  tags: readonly string[],
  groups: number,
): { readonly tag: string; readonly groups: number }[] {
  return apportion(
    tags.map(() => 1),
    groups,
  ).map((count, i) => ({ tag: tags[i], groups: count }));
}

/** Tags that validation plays, including those of its sets. */
export function validationTags({ train_tags, validation }: RunSettings): string[] {
  const named = Object.values(validation.sets).flatMap(({ tags }) => tags ?? []);
  return [...new Set([...(validation.tags ?? train_tags), ...named])];
}

/** Distance between the levels of runs with different seeds. */
const SEED_STRIDE = 100_000_000;

/** First seeds of the levels of a run: each kind has its own range, shifted by the run's seed. */
export function levelSeeds({ seed, seeds, rollout, validation, warm_start }: RunSettings): {
  readonly training: number;
  readonly validation: number;
  readonly demonstrations: number;
} {
  const moved = SEED_STRIDE * seed;
  return {
    training: rollout.start_seed + moved,
    validation: seeds.validation ?? validation.seed + moved,
    demonstrations: (warm_start?.start_seed ?? 0) + moved,
  };
}

type SamplingSection = Pick<RunSettings['rollout'], keyof ReturnType<typeof sampling>>;

/** Distribution that tokens are sampled from. */
export function samplingDistribution(section: SamplingSection): SamplingDistribution {
  const { temperature, top_k, top_p, min_p, repetition_penalty, logit_bias, bad_words } = section;
  const { presence_penalty, frequency_penalty } = section;
  const own = { temperature, top_k, top_p, min_p, repetition_penalty, logit_bias, bad_words };
  return camelized({ ...own, presence_penalty, frequency_penalty });
}

/** The first setting that makes sampling differ from softmax(logits / temperature); undefined for none. */
export function distributionChange(section: SamplingSection): string | undefined {
  const { temperature: _, ...changed } = changedSamplingFields(samplingDistribution(section));
  return Object.keys(changed)[0];
}

/** The loss in the form that the policy's update takes. */
export function lossSettings(settings: RunSettings): LossSettings {
  const { kl, dppo, ipo, sapo, cross_entropy, off_policy, value_coefficient, value_clip, ...loss } =
    settings.loss;
  const { demonstration, ...klTerm } = kl;
  return {
    ...camelized(loss),
    maxResponseLength: loss.max_response_length ?? settings.policy.context,
    kl: camelized(klTerm),
    dppo: camelized(dppo),
    ipo: camelized(ipo),
    sapo: camelized(sapo),
    value: { coefficient: settings.policy.value_head ? value_coefficient : 0, clip: value_clip },
    offPolicy: offPolicySettings(settings),
  };
}

/** Losses with a trust region around the rollout, which replaces a correcting weight. */
const HANDLES_STALENESS: ReadonlySet<string> = new Set(['dppo', 'ipo']);

function offPolicySettings({ loss, rollout }: RunSettings): OffPolicySettings {
  const { kind, cap, low, high } = loss.off_policy;
  switch (kind) {
    case 'auto':
      return (rollout.asynchronous?.max_staleness ?? 0) > 0 &&
        policyLoss(loss.policy).kind === 'ratio' &&
        loss.anchor !== 'rollout' &&
        !HANDLES_STALENESS.has(loss.policy) &&
        !policyLoss(loss.policy).needsProximal
        ? { kind: 'tis', cap }
        : { kind: 'none' };
    case 'none':
      return { kind: 'none' };
    case 'tis':
    case 'sequence_tis':
      return { kind, cap };
    default:
      return { kind, low, high };
  }
}

/** True if the update needs log-probabilities under the weights it starts from. */
export function needsProximal(settings: RunSettings): boolean {
  return usesProximal(lossSettings(settings));
}

/**
 * Folder of the model that a run begins with, an adapter's base or the whole, by the settings; that of its tokenizer where a Tinker
 * server has the model, and undefined from scratch.
 */
export function baseFolder({ policy: { init, runtime, tokenizer } }: RunSettings): string | undefined {
  if (runtime === 'tinker') return tokenizer ?? undefined;
  return init === 'scratch' ? undefined : init;
}

/** True if the loss learns from pairs of episodes. */
export function hasPreferenceLoss({ loss }: RunSettings): boolean {
  return policyLoss(loss.policy).kind === 'preference';
}

/** True if the loss also has a weighted cross-entropy over tokens. */
export function hasCrossEntropy({ cross_entropy }: RunSettings['loss']): boolean {
  return cross_entropy.sampled > 0 || cross_entropy.observations > 0;
}

/** True if a KL term, the advantages or the loss compare with a reference policy. */
export function needsReference(settings: RunSettings): boolean {
  const distills = advantageEstimator(settings.algorithm.advantage).needs.includes('referenceLogProbs');
  const compares = hasKlLoss(settings) && !isSelfDistilled(settings);
  return distills || compares || hasKlInReward(settings) || hasPreferenceLoss(settings);
}

/** True if the KL term compares with the policy itself, given a demonstration. */
export function isSelfDistilled({ loss }: RunSettings): boolean {
  return loss.kl.demonstration === 'group';
}

/** True if entropy is rewarded in any iteration. */
export function hasEntropyBonus({ loss, schedules }: RunSettings): boolean {
  return loss.entropy_coefficient > 0 || schedules.entropy_coefficient !== null;
}

/** True if the loss has a KL term in any iteration. */
export function hasKlLoss({ loss, schedules }: RunSettings): boolean {
  return loss.kl.coefficient > 0 || schedules.kl_coefficient !== null;
}

/** True if the reward has a KL term in any iteration. */
export function hasKlInReward({ algorithm, schedules }: RunSettings): boolean {
  return algorithm.kl_in_reward.coefficient > 0 || schedules.kl_in_reward_coefficient !== null;
}

/** True if values are estimated after the rollout, because nothing gave them with the tokens. */
export function estimatesLater({ policy, generation }: RunSettings): boolean {
  return policy.value_head && (policy.critic !== null || generation.engine !== 'local');
}

/** True if the policy's trunk has a value head. */
export function hasValueHead({ policy }: RunSettings): boolean {
  return policy.value_head && policy.critic === null;
}

export function filterSettings({ algorithm: { filter } }: RunSettings): FilterSettings {
  const { strategy, value, score, order, mass, include_zero: includeZero, selection_eps: epsilon } = filter;
  return { strategy, value, score, order, mass, includeZero, epsilon };
}

/** Settings of the monitored metric; undefined where nothing depends on it. */
export function monitorSettings({ training }: RunSettings): MonitorSettings | undefined {
  const { monitor, keep_best, early_stopping: rules } = training;
  if (!keep_best && rules.patience === 0 && rules.target === null) return undefined;
  return { ...monitor, patience: rules.patience, minDelta: rules.min_delta, target: rules.target };
}

export function earlyStoppingSettings({ training }: RunSettings): EarlyStoppingSettings {
  const { patience, min_delta, target, ...rules } = training.early_stopping;
  return camelized(rules);
}

/** True if the trajectories of an iteration, counted from 1, are written. */
export function recordsTrajectories({ tracking }: Pick<RunSettings, 'tracking'>, step: number): boolean {
  return tracking.trajectories_every > 0 && step % tracking.trajectories_every === 0;
}

/**
 * The secret in the environment variable that a setting names; undefined where it names none.
 * @throws Error where the variable is not set
 */
export function secretOf(setting: string, variable: string | null): string | undefined {
  if (variable === null) return undefined;
  const secret = process.env[variable];
  if (secret) return secret;
  throw new Error(`${setting}: the environment variable ${variable} is not set`);
}
