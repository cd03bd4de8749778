import { scratchConfig } from '../models/config.ts';
import { LocalPolicy } from '../policy/local/local-policy.ts';
import type { Tokenizer } from '../policy/tokenizer.ts';
import type { RunSettings } from './settings.ts';

/**
 * The policy of a run.
 * @param folder weights to start from, with the optimiser's state where it is there; undefined: from scratch
 * @throws ModelConfigError, SafetensorsError or RangeError for a model that does not fit the settings
 */
export async function openPolicy(
  settings: RunSettings,
  tokenizer: Tokenizer,
  folder: string | undefined,
): Promise<LocalPolicy> {
  const { policy: sizes, rollout, seed } = settings;
  const policy = await LocalPolicy.create({
    model:
      folder ??
      scratchConfig({
        vocabularySize: tokenizer.vocabularySize,
        hiddenSize: sizes.hidden_size,
        layers: sizes.layers,
        heads: sizes.heads,
        keyValueHeads: sizes.key_value_heads ?? sizes.heads,
        intermediateSize: sizes.intermediate_size,
        maxPositions: sizes.context,
        ropeTheta: sizes.rope_theta,
        eosTokenId: tokenizer.eosTokenId,
        padTokenId: tokenizer.padTokenId,
      }),
    seed,
    workers: sizes.workers,
    threads: sizes.threads,
    runtime: sizes.runtime,
    valueHead: sizes.value_head,
    maxSequenceLength: sizes.context,
    maxOpenSequences: rollout.concurrency,
    files: tokenizer.files,
  });
  if (folder !== undefined) await policy.load(folder);
  return policy;
}
