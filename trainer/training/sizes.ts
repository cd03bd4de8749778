import type { DecoderConfig } from '../models/config.ts';
import { type ParameterSpec, parameterSpecs, trainedSpecs } from '../models/parameters.ts';
import { pageBytes } from '../policy/engine/attention-kernel.ts';
import { PAGE_POSITIONS } from '../policy/engine/page-table.ts';
import type { RunSettings } from './settings.ts';
import { needsReference } from './settings-derived.ts';

const FLOAT_BYTES = 4;
/** Most memory that a worker's cache can have. */
const MAX_CACHE_BYTES = 2 ** 32;
/** Values that a layer keeps for its backward pass, as multiples of hidden and intermediate size; measured, not exact. */
const KEPT = { hidden: 10, intermediate: 4, vocabulary: 3 };

/** What a run takes, in numbers. */
export interface RunSizes {
  /** Weights of the policy, its adapters and value head included. */
  readonly parameters: number;
  /** Those that are learnt: all, or with adapters these and the value head. */
  readonly trained: number;
  /** Bytes by what they are for; the cache and activations are filled only as they are needed. */
  readonly memory: readonly { readonly what: string; readonly bytes: number }[];
  readonly totalBytes: number;
  /** Episodes of an iteration, and of the whole run. */
  readonly episodesPerIteration: number;
  readonly episodes: number;
}

/** Sizes of a run with a policy of this shape on this machine's processors. */
export function runSizes(settings: RunSettings, config: DecoderConfig): RunSizes {
  const { policy, rollout, training } = settings;
  const workers = policy.workers ?? 1;
  const trained = countWeights(trainedSpecs(config, policy.value_head));
  const adapted = config.lora !== undefined;
  const frozen = adapted ? countWeights(parameterSpecs(config, false)) : 0;
  const parameters = frozen + trained;
  const weights = FLOAT_BYTES * parameters;
  const learnt = FLOAT_BYTES * trained;
  const reference = adapted && policy.reference === null ? learnt : weights;
  const pages = Math.ceil(rollout.concurrency / workers) * Math.ceil(policy.context / PAGE_POSITIONS);
  const cache = Math.min(MAX_CACHE_BYTES, pages * pageBytes(config, config.layers));
  const perLayer = KEPT.hidden * config.hiddenSize + KEPT.intermediate * config.intermediateSize;
  const layers = policy.recompute ? config.layers * config.hiddenSize + perLayer : config.layers * perLayer;
  const perToken = layers + KEPT.vocabulary * config.vocabularySize;
  const memory = [
    { what: 'weights', bytes: weights },
    { what: 'optimiser (two moments)', bytes: 2 * learnt },
    { what: `gradients (${workers} workers, a sum and a part each)`, bytes: 2 * workers * learnt },
    { what: `cache of ${rollout.concurrency} open episodes, at most`, bytes: workers * cache },
    { what: 'activations, about', bytes: workers * policy.micro_batch_tokens * perToken * FLOAT_BYTES },
    ...(needsReference(settings) ? [{ what: 'reference policy', bytes: reference }] : []),
  ];
  const episodesPerIteration = rollout.env_groups * rollout.group_size;
  return {
    parameters,
    trained,
    memory,
    totalBytes: memory.reduce((sum, { bytes }) => sum + bytes, 0),
    episodesPerIteration,
    episodes: episodesPerIteration * training.steps,
  };
}

function countWeights(specs: readonly ParameterSpec[]): number {
  return specs.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
}
