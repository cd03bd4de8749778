import { secretOf } from '../../config/derived.ts';
import { ATTENTION_MODULES, MLP_MODULES } from '../../config/sections/policy.ts';
import type { RunSettings } from '../../config/settings.ts';
import { TinkerPolicy, type TinkerPolicyOptions } from '../../policy/tinker/tinker-policy.ts';
import type { RunContext } from './run-context.ts';

/**
 * The policy of a run at a Tinker server.
 * @param folder with a checkpoint to continue from, or the tokenizer alone
 * @param use `run` has folders that name checkpoints of the server; absent where none is written
 * @throws Error naming the setting that does not fit the server, or the variable without a key; TinkerError for its refusals
 */
export function openTinker(
  { policy, rollout, seed }: RunSettings,
  { tokenizer }: Pick<RunContext, 'tokenizer'>,
  folder: string | undefined,
  use: Pick<TinkerPolicyOptions, 'note' | 'generationOnly' | 'run'>,
): Promise<TinkerPolicy> {
  const { note } = use;
  const { url, token_env, patience_s, price_per_million: prices, ...tinker } = policy.tinker!;
  const apiKey = secretOf('policy.tinker.token_env', token_env);
  const modules: readonly string[] = policy.lora!.target_modules;
  return TinkerPolicy.open({
    ...use,
    ...(apiKey && { apiKey }),
    ...(folder !== undefined && { folder }),
    url,
    server: tinker.server,
    retry: { patienceMs: 1000 * patience_s },
    waiting: {
      onWaiting: ({ waitedMs, error }) => waitedMs === 0 && note(`waiting for ${url}: ${error.message}`),
      onBack: ({ waitedMs }) => note(`${url} replies again after ${Math.round(waitedMs / 1000)} s`),
    },
    baseModel: policy.init,
    lora: {
      rank: policy.lora!.rank,
      seed,
      attention: ATTENTION_MODULES.some(name => modules.includes(name)),
      mlp: MLP_MODULES.some(name => modules.includes(name)),
    },
    vocabularySize: tokenizer.vocabularySize,
    maxSequenceLength: policy.context,
    keepCheckpoints: tinker.keep_checkpoints,
    ttlSeconds: tinker.ttl_s,
    olderVersions: (rollout.asynchronous?.max_staleness ?? 0) + 1,
    prices,
    files: tokenizer.files,
    decode: ids => tokenizer.decode(ids),
  });
}
