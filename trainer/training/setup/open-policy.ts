import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { baseFolder, hasValueHead, secretOf } from '../../config/derived.ts';
import { ATTENTION_MODULES, loraConfig, MLP_MODULES } from '../../config/sections/policy.ts';
import type { RunSettings } from '../../config/settings.ts';
import { type DecoderConfig, scratchConfig } from '../../models/config.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { isAdapterFolder } from '../../policy/checkpoint/model-folder.ts';
import { EndpointScorer } from '../../policy/endpoint-scorer.ts';
import { CRITIC_FOLDER, LocalPolicy, type LocalPolicyOptions } from '../../policy/local-policy.ts';
import type { Policy } from '../../policy/policy.ts';
import { TinkerPolicy, type TinkerPolicyOptions } from '../../policy/tinker/tinker-policy.ts';
import { oldestCheckpoint } from '../run-folder/checkpoint.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';
import type { RunContext } from './run-context.ts';

const GIBIBYTE = 2 ** 30;

/**
 * The policy of a run.
 * @param folder weights to start from, or an adapter for those of `policy.init`, with the optimizer's state if there is
 * one; undefined: from scratch
 * @param use `generationOnly` for a policy that does not learn: it reads no optimizer state; `quantization` of its
 * base, if it differs from the settings
 * @throws ModelConfigError, SafetensorsError or RangeError for a model that does not fit the settings
 */
export async function openPolicy(
  settings: RunSettings,
  { tokenizer, grammars }: Pick<RunContext, 'tokenizer' | 'grammars'>,
  folder: string | undefined,
  use: Pick<LocalPolicyOptions, 'generationOnly' | 'quantization'> = {},
): Promise<LocalPolicy> {
  const { policy: sizes, rollout, seed } = settings;
  const policy = await LocalPolicy.create({
    model: folder ?? freshModel(settings, tokenizer),
    base: baseFolder(settings),
    lora: sizes.lora ? loraConfig(sizes.lora) : undefined,
    loraDropout: sizes.lora?.dropout,
    quantization: sizes.lora?.quantization ?? undefined,
    basePrecision: sizes.base_precision,
    seed,
    ...computeOptions(settings),
    valueHead: hasValueHead(settings),
    maxSequenceLength: sizes.context,
    maxOpenSequences: rollout.concurrency,
    grammars,
    keepStaleCache: rollout.asynchronous?.keep_stale_cache,
    ...use,
    files: tokenizer.files,
  });
  try {
    // A fresh adapter takes nothing from its base.
    const fresh =
      policy.config.lora !== undefined && folder !== undefined && !(await isAdapterFolder(folder));
    if (folder !== undefined && !fresh) await policy.load(folder);
    return policy;
  } catch (error) {
    await policy.close();
    throw error;
  }
}

type ComputeOptions = Pick<
  LocalPolicyOptions,
  'workers' | 'threads' | 'tokenBudget' | 'recompute' | 'runtime' | 'precision' | 'lossScale' | 'gpuMemory'
>;

/** Compute options of a run's models. */
function computeOptions({ policy }: RunSettings): ComputeOptions {
  return {
    workers: policy.workers ?? undefined,
    threads: policy.threads,
    tokenBudget: policy.micro_batch_tokens,
    recompute: policy.recompute,
    // A Tinker policy computes little on this machine.
    runtime: policy.runtime === 'tinker' ? 'onnx' : policy.runtime,
    precision: policy.precision,
    ...(policy.gpu_memory_gib === null ? {} : { gpuMemory: policy.gpu_memory_gib * GIBIBYTE }),
    lossScale: {
      initial: policy.loss_scale.initial,
      growthInterval: policy.loss_scale.growth_interval,
      backOff: policy.loss_scale.back_off,
    },
  };
}

/**
 * Attaches the critic that a run's settings ask for to its policy. A critic trains the same parts of its model as the
 * policy: all weights, or with `policy.lora` adapters, over the policy's own base unless it begins as another model.
 * @param checkpoint folder of the policy to continue from; undefined at the start of its training
 * @throws ModelConfigError, SafetensorsError or RangeError for a model that does not fit the settings
 */
export async function attachCritic(
  settings: RunSettings,
  actor: Policy,
  checkpoint: string | undefined,
): Promise<void> {
  const { critic: own, lora, context } = settings.policy;
  if (own === null) return;
  if (!(actor instanceof LocalPolicy))
    throw new Error('policy.critic: the policy does not expose its weights');
  const critic = await LocalPolicy.create({
    ...computeOptions(settings),
    model: own.init ?? (await actor.weightsNow()),
    lora: lora && own.init !== null ? loraConfig(lora) : undefined,
    loraDropout: lora?.dropout,
    seed: settings.seed,
    valueHead: true,
    critic: true,
    maxSequenceLength: context,
    maxOpenSequences: 1,
  });
  try {
    if (critic.vocabularySize < actor.vocabularySize) {
      throw new RangeError(
        `policy.critic.init: ${own.init} has ${critic.vocabularySize} tokens, the policy ${actor.vocabularySize}`,
      );
    }
    if (checkpoint !== undefined) await critic.load(join(checkpoint, CRITIC_FOLDER));
    actor.attachCritic(critic);
  } catch (error) {
    await critic.close();
    throw error;
  }
}

/** The policy that KL terms compare with. */
export interface ReferencePolicy extends Pick<Policy, 'score'> {
  /** Loads the policy in a folder; absent where the reference never changes. */
  load?(folder: string): Promise<void>;
  close(): Promise<void>;
}

/** The shape of a policy from scratch with the tokenizer's vocabulary. */
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
 * The reference of a run: the policy of `policy.reference`, the model behind `policy.reference_endpoint`, or the
 * trained policy at the start of training. If training learns adapters, the last scores with the initial ones, and
 * there is no second copy of the model.
 * @param found folder of the policy at the start of training
 * @throws ModelConfigError, SafetensorsError or RangeError for a model that does not fit the settings
 */
export async function openReference(
  settings: RunSettings,
  context: Pick<RunContext, 'tokenizer' | 'grammars'>,
  policy: Policy,
  found: string,
): Promise<ReferencePolicy> {
  const { reference, reference_endpoint } = settings.policy;
  if (reference_endpoint !== null) return openEndpointReference(reference_endpoint);
  const { scoreReference, loadReference } = policy;
  if (reference !== null || !scoreReference || !loadReference || (policy.config && !policy.config.lora)) {
    return openScoring(settings, context, reference ?? found);
  }
  await loadReference.call(policy, found);
  return {
    score: scoreReference.bind(policy),
    load: loadReference.bind(policy),
    close: async () => {},
  };
}

/** @throws Error for a key that is not set */
function openEndpointReference(
  endpoint: NonNullable<RunSettings['policy']['reference_endpoint']>,
): ReferencePolicy {
  const { url, model, api_key_env, concurrency, attempts, timeout_s } = endpoint;
  const apiKey = secretOf('policy.reference_endpoint.api_key_env', api_key_env);
  const timeoutMs = 1000 * timeout_s;
  return new EndpointScorer({
    url,
    model,
    concurrency,
    attempts,
    timeoutMs,
    ...(apiKey === undefined ? {} : { apiKey }),
  });
}

/** A policy that only scores. Its vocabulary and context must be the trained policy's. */
async function openScoring(
  settings: RunSettings,
  { tokenizer, grammars }: Pick<RunContext, 'tokenizer' | 'grammars'>,
  folder: string,
): Promise<LocalPolicy> {
  const reference = await LocalPolicy.create({
    ...computeOptions(settings),
    model: folder,
    seed: settings.seed,
    valueHead: false,
    maxSequenceLength: settings.policy.context,
    maxOpenSequences: 1,
    grammars,
  });
  if (reference.vocabularySize >= tokenizer.vocabularySize) return reference;
  await reference.close();
  throw new RangeError(
    `policy.reference: ${folder} has ${reference.vocabularySize} tokens, the policy's tokenizer has ${tokenizer.vocabularySize}`,
  );
}

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

const NAME = /^step-(\d+)$/;

/**
 * The folder of the reference after an iteration: the policy at the start of training, or at the last refresh. It
 * follows from the iteration alone, so a resumed run continues with the same one.
 */
export function referenceFolder(
  run: Pick<RunFolder, 'reference' | 'references'>,
  { policy }: RunSettings,
  step: number,
): string {
  const every = policy.reference_refresh_every;
  const refreshed = every === null ? 0 : step - (step % every);
  return refreshed === 0 ? run.reference : join(run.references, folderName(refreshed));
}

/**
 * Replaces the reference by the present policy, if that is due after an iteration. References from before the oldest
 * checkpoint, which no run resumes with, are removed.
 */
export async function refreshReference(
  { settings, run, policy, reference }: RefreshParts,
  step: number,
): Promise<void> {
  const every = settings.policy.reference_refresh_every;
  if (!reference || every === null || step % every !== 0) return;
  if (!policy.publish || !reference.load)
    throw new Error('the reference cannot take the weights of the policy');
  const folder = join(run.references, folderName(step));
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  await policy.publish(partial);
  rmSync(folder, { recursive: true, force: true });
  renameSync(partial, folder);
  await reference.load(folder);
  const oldest = oldestCheckpoint(run);
  const needed = oldest - (oldest % every);
  for (const name of existsSync(run.references) ? readdirSync(run.references) : []) {
    const match = NAME.exec(name);
    if (match && Number(match[1]) < needed)
      rmSync(join(run.references, name), { recursive: true, force: true });
  }
}

interface RefreshParts {
  readonly settings: RunSettings;
  readonly run: RunFolder;
  readonly policy: Pick<Policy, 'publish'>;
  readonly reference?: Pick<ReferencePolicy, 'load'>;
}

function folderName(step: number): string {
  return `step-${String(step).padStart(6, '0')}`;
}
