import { type DecoderConfig, scratchConfig } from '../models/config.ts';
import { LocalPolicy } from '../policy/local/local-policy.ts';
import type { Tokenizer } from '../policy/tokenizer.ts';
import type { RunSettings } from './settings.ts';
import type { Workbench } from './workbench.ts';

/**
 * The policy of a run.
 * @param folder weights to start from, with the optimiser's state where it is there; undefined: from scratch
 * @throws ModelConfigError, SafetensorsError or RangeError for a model that does not fit the settings
 */
export async function openPolicy(
  settings: RunSettings,
  { tokenizer, grammars }: Pick<Workbench, 'tokenizer' | 'grammars'>,
  folder: string | undefined,
): Promise<LocalPolicy> {
  const { policy: sizes, rollout, seed } = settings;
  const policy = await LocalPolicy.create({
    model: folder ?? freshModel(settings, tokenizer),
    seed,
    workers: sizes.workers ?? undefined,
    threads: sizes.threads,
    tokenBudget: sizes.micro_batch_tokens,
    recompute: sizes.recompute,
    runtime: sizes.runtime,
    valueHead: sizes.value_head,
    maxSequenceLength: sizes.context,
    maxOpenSequences: rollout.concurrency,
    grammars,
    keepStaleCache: rollout.asynchronous?.keep_stale_cache,
    files: tokenizer.files,
  });
  if (folder !== undefined) await policy.load(folder);
  return policy;
}

/** The shape of a policy from scratch whose tokens are the tokenizer's. */
export function freshModel(
  { policy: sizes }: RunSettings,
  tokenizer: Pick<Tokenizer, 'vocabularySize' | 'eosTokenId' | 'padTokenId'>,
): DecoderConfig {
  return scratchConfig({
    vocabularySize: tokenizer.vocabularySize,
    hiddenSize: sizes.hidden_size,
    layers: sizes.layers,
    heads: sizes.heads,
    keyValueHeads: sizes.key_value_heads ?? sizes.heads,
    intermediateSize: sizes.intermediate_size,
    maxPositions: sizes.context,
    ropeTheta: sizes.rope_theta,
    initializerRange: sizes.initializer_range,
    eosTokenId: tokenizer.eosTokenId,
    padTokenId: tokenizer.padTokenId,
  });
}

/**
 * A policy that only scores: whom KL terms compare with. Its vocabulary and context must be the trained policy's.
 * @param folder its weights
 * @throws ModelConfigError, SafetensorsError or RangeError for a model that does not fit the settings
 */
export async function openReference(
  { policy: sizes, seed }: RunSettings,
  { tokenizer, grammars }: Pick<Workbench, 'tokenizer' | 'grammars'>,
  folder: string,
): Promise<LocalPolicy> {
  const reference = await LocalPolicy.create({
    model: folder,
    seed,
    workers: sizes.workers ?? undefined,
    threads: sizes.threads,
    tokenBudget: sizes.micro_batch_tokens,
    runtime: sizes.runtime,
    valueHead: false,
    maxSequenceLength: sizes.context,
    maxOpenSequences: 1,
    grammars,
  });
  if (reference.vocabularySize >= tokenizer.vocabularySize) return reference;
  await reference.close();
  throw new RangeError(
    `policy.reference: ${folder} knows ${reference.vocabularySize} tokens, the policy's tokenizer has ${tokenizer.vocabularySize}`,
  );
}
