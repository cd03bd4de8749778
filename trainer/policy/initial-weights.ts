import { squaredNorms, startMagnitudes } from '../models/adapters/dora.ts';
import type { DecoderConfig } from '../models/config.ts';
import { storedParameters } from '../models/frozen-weights.ts';
import {
  initialize,
  isFrozen,
  type ParameterSpec,
  parameterSpecs,
  trainedSpecs,
} from '../models/parameters.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { readBase, readTrained } from './checkpoint/checkpoint.ts';
import type { ModelFolders } from './checkpoint/model-folder.ts';
import type { LocalPolicyOptions, ModelState } from './options.ts';

/** Initial weights of a policy. */
export interface InitialWeights {
  /** Frozen weights next to adapters; null where everything is learned. */
  readonly base: ParameterStore | null;
  /** Squared norms of the rows of its weights, where DoRA adapts them. */
  readonly norms: ParameterStore | null;
  /** Learned weights. */
  readonly weights: ParameterStore;
}

/** Fresh weights, or those of the folder, split into frozen and learned ones. */
export async function loadWeights(
  config: DecoderConfig,
  place: ModelFolders | null,
  { seed, valueHead }: LocalPolicyOptions,
): Promise<InitialWeights> {
  const fresh = (specs: readonly ParameterSpec[]) => freshWeights(specs, config, seed);
  const frozen = isFrozen(config) ? parameterSpecs(config, false) : [];
  const trained = trainedSpecs(config, valueHead);
  const stored = () => new ParameterStore(storedParameters(frozen, config));
  const base = frozen.length === 0 ? null : place === null ? fresh(frozen) : stored();
  if (base !== null && place !== null) await readBase(place.base, config, base);
  const isFresh = place === null || (base !== null && place.adapter === null);
  const weights = isFresh ? fresh(trained) : new ParameterStore(trained);
  const norms = squaredNorms(config, base);
  if (norms !== null) startMagnitudes(config, norms, weights);
  if (place !== null) await readTrained(place, config, weights);
  return { base, norms, weights };
}

/** Weights copied by name from a model in memory, fresh where it has none; frozen ones are shared. */
export function takenWeights(
  config: DecoderConfig,
  { base, weights: given }: ModelState,
  { seed, valueHead }: LocalPolicyOptions,
): InitialWeights {
  const weights = freshWeights(trainedSpecs(config, valueHead), config, seed);
  const norms = squaredNorms(config, base);
  if (norms !== null) startMagnitudes(config, norms, weights);
  const wanted = new Set(weights.layout.map(({ name }) => name));
  for (const { name } of given.layout) {
    if (wanted.has(name)) weights.array(name).set(given.array(name));
  }
  return { base, norms, weights };
}

function freshWeights(specs: readonly ParameterSpec[], config: DecoderConfig, seed: number): ParameterStore {
  const store = new ParameterStore(specs);
  initialize(store, specs, config.initializerRange, seed);
  return store;
}

/** Makes stores for what learning keeps of each weight; they are empty where nothing is learned. */
export function learnedStore(
  { generationOnly = false }: LocalPolicyOptions,
  weights: ParameterStore,
): () => ParameterStore {
  return () => (generationOnly ? new ParameterStore([]) : weights.emptyLike());
}
