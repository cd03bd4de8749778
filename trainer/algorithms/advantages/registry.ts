import { biLevelGae } from './bi-level-gae.ts';
import { drGrpo } from './dr-grpo.ts';
import {
  type AdvantageEstimator,
  type AdvantageRequirement,
  type AdvantageSequence,
  type AdvantageSettings,
  type Advantages,
  DEFAULT_ADVANTAGE_SETTINGS,
} from './estimator.ts';
import { gae } from './gae.ts';
import { gigpo } from './gigpo.ts';
import { g2po, gagpo, graphGpo } from './graph/estimators.ts';
import { gdpo } from './group/gdpo.ts';
import { hierarchicalGrpo } from './group/hierarchical-grpo.ts';
import { otb } from './group/otb.ts';
import { passAtK } from './group/pass-at-k.ts';
import { turnLoo } from './group/turn-loo.ts';
import { grpo } from './grpo.ts';
import { maxrl } from './maxrl.ts';
import { opo } from './opo.ts';
import { rebn } from './rebn.ts';
import { reinforcePp } from './reinforce-pp.ts';
import { reinforcePpBaseline } from './reinforce-pp-baseline.ts';
import { rloo } from './rloo.ts';
import { treeGrpo, treeLoo, treeRl } from './tree/estimators.ts';
import { vine } from './tree/vine.ts';
import { iwOpd } from './without-groups/iw-opd.ts';
import { rae } from './without-groups/rae.ts';

const ESTIMATORS = {
  gae,
  bi_level_gae: biLevelGae,
  grpo,
  dr_grpo: drGrpo,
  rloo,
  reinforce_pp: reinforcePp,
  reinforce_pp_baseline: reinforcePpBaseline,
  gigpo,
  opo,
  maxrl,
  rebn,
  turn_loo: turnLoo,
  gdpo,
  pass_at_k: passAtK,
  otb,
  rae,
  hierarchical_grpo: hierarchicalGrpo,
  iw_opd: iwOpd,
  graph_gpo: graphGpo,
  g2po,
  gagpo,
  tree_loo: treeLoo,
  tree_grpo: treeGrpo,
  tree_rl: treeRl,
  vine,
} satisfies Record<string, AdvantageEstimator>;

export type AdvantageName = keyof typeof ESTIMATORS;
export const ADVANTAGES = Object.keys(ESTIMATORS) as readonly AdvantageName[];

/** @throws RangeError listing the valid names. */
export function advantageEstimator(name: string): AdvantageEstimator {
  if (!Object.hasOwn(ESTIMATORS, name)) {
    throw new RangeError(`no advantage estimator "${name}"; choose one of ${ADVANTAGES.join(', ')}`);
  }
  return ESTIMATORS[name as AdvantageName];
}

/** Inputs that the run can pass to the estimator. */
export interface AdvantageSupport {
  readonly valueHead: boolean;
  /** Episodes that start from the same state. */
  readonly groupSize: number;
  readonly contextMode: 'full' | 'limited_multi_turn' | 'single_turn';
}

/** True if an estimator takes only episodes of one sequence. */
export function needsWholeEpisodes(name: string): boolean {
  return advantageEstimator(name).needs.includes('states');
}

/**
 * Rejects an estimator that needs inputs the run lacks.
 * @throws RangeError with the reason and what would be right
 */
export function checkAdvantage(name: string, offer: AdvantageSupport): void {
  const { needs } = advantageEstimator(name);
  if (needs.includes('values') && !offer.valueHead) {
    throw new RangeError(
      `${name} needs value estimates, but the policy has no value head: turn it on or choose grpo`,
    );
  }
  if (needs.includes('groups') && offer.groupSize < 2) {
    throw new RangeError(
      `${name} compares the episodes of a group, but group_size is ${offer.groupSize}: use at least 2`,
    );
  }
  if (needs.includes('turnEnds') && !needs.includes('leaf') && offer.contextMode !== 'full') {
    throw new RangeError(
      `${name} needs the turns of an episode in one sequence, but the context mode is ${offer.contextMode}: use full`,
    );
  }
}

/**
 * Advantages and returns of a batch; pure.
 *
 * @example
 * estimateAdvantages('grpo', [
 *   { lossMask: [1], rewards: [1], groupId: 0 },
 *   { lossMask: [1], rewards: [0], groupId: 0 },
 * ]).advantages; // [[0.7071…], [−0.7071…]]
 *
 * @throws RangeError for an unknown name, arrays of unequal length, or arrays that the estimator needs and a
 * sequence lacks
 */
export function estimateAdvantages(
  name: string,
  sequences: readonly AdvantageSequence[],
  settings: Partial<AdvantageSettings> = {},
): Advantages {
  const estimator = advantageEstimator(name);
  for (const [i, sequence] of sequences.entries()) checkSequence(sequence, i, name, estimator.needs);
  return estimator.estimate(sequences, { ...DEFAULT_ADVANTAGE_SETTINGS, ...settings });
}

/** Arrays of a sequence with an entry for each token. */
const PER_TOKEN = [
  'rewards',
  'values',
  'logProbs',
  'referenceLogProbs',
  'squaredProbabilities',
  'rolloutWeights',
] as const;

function checkSequence(
  sequence: AdvantageSequence,
  index: number,
  name: string,
  needs: readonly AdvantageRequirement[],
): void {
  for (const key of needs) {
    if (key === 'groups' || key === 'finalStates') continue;
    if (needs.includes(key) && sequence[key] === undefined) {
      throw new RangeError(`${name} needs "${key}", which sequence ${index} lacks`);
    }
  }
  for (const key of PER_TOKEN) {
    const array = sequence[key];
    if (array !== undefined && array.length !== sequence.lossMask.length) {
      throw new RangeError(
        `sequence ${index}: ${key} has ${array.length} entries for ${sequence.lossMask.length} tokens`,
      );
    }
  }
}
