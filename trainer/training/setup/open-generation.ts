import { mkdir, rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { secretOf } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import { Gateway, programAgent } from '../../gateway/gateway.ts';
import type { GatewayPolicy } from '../../gateway/rollout.ts';
import type { Generator } from '../../generation/generation.ts';
import type { EngineClient, EngineHttpOptions } from '../../generation/remote/engine-client.ts';
import { SglangEngine, VllmEngine } from '../../generation/remote/engines.ts';
import { RagenEngine } from '../../generation/remote/ragen-engine.ts';
import { RemoteGenerator } from '../../generation/remote/remote-generator.ts';
import type { TrainedPolicy } from '../../policy/policy.ts';
import type { Episode } from '../../rollout/episode.ts';
import type { EpisodeAgent } from '../../rollout/episode-agent.ts';
import type { IntervalMeter } from '../../rollout/tally.ts';
import { checkedGap } from '../iteration/generation-gap.ts';
import type { RunContext } from './run-context.ts';

/** The generator a run samples from, kept in step with the policy that learns. */
export interface GenerationPort {
  readonly generator: Generator;
  /** Announces new weights: later samples come from them. */
  publish(): Promise<void>;
  /**
   * If a comparison is due, compares the log-probabilities of an iteration's tokens with the policy's own.
   * @throws GenerationGapError when they are too far apart
   */
  check(step: number, episodes: readonly Episode[]): Promise<Metrics>;
  takeMetrics(): Metrics;
  close(): Promise<void>;
}

export interface GenerationParts {
  readonly settings: RunSettings;
  /** Name of the run, the prefix of its version names. */
  readonly run: string;
  readonly context: Pick<RunContext, 'grammars'>;
  readonly policy: TrainedPolicy;
  /** Called with a line for each engine that is left out. */
  readonly note: (text: string) => void;
}

/**
 * Where the run samples: the policy itself, or the engines of `generation.urls`, which then have the policy's weights.
 * @throws Error saying what an engine lacks, or that none answers
 */
export async function openGeneration(parts: GenerationParts): Promise<GenerationPort> {
  const { settings, policy } = parts;
  if (settings.generation.engine === 'local') {
    await policy.sampler?.publish();
    return policyGeneration(parts);
  }
  const { urls, adapter_folder, patience_s } = settings.generation;
  const folder = resolve(adapter_folder!);
  await mkdir(folder, { recursive: true });
  const generator = new RemoteGenerator({
    engines: urls.map(url => engineClient(settings, url)),
    maxSequenceLength: policy.maxSequenceLength,
    vocabularySize: policy.vocabularySize,
    grammars: parts.context.grammars,
    patienceMs: 1000 * patience_s,
    olderVersions: (settings.rollout.asynchronous?.max_staleness ?? 0) + 1,
    note: parts.note,
  });
  const port = new RemoteGeneration(parts, generator, folder);
  try {
    await generator.probe();
    await port.publish();
    return port;
  } catch (error) {
    await port.close();
    throw error;
  }
}

/** The policy's own sampling; compared with its scores where it samples from copies of its weights. */
function policyGeneration({ policy, settings }: GenerationParts): GenerationPort {
  const { sampler } = policy;
  return {
    generator: policy,
    publish: async () => sampler?.publish(),
    check: async (step, episodes) =>
      sampler
        ? checkedGap(settings, policy, step, episodes, { generator: policy, published: sampler.published })
        : {},
    takeMetrics: () => sampler?.takeMetrics() ?? {},
    close: async () => {},
  };
}

/** Engines that take each version of the weights from a folder. */
class RemoteGeneration implements GenerationPort {
  readonly generator: RemoteGenerator;
  readonly #parts: GenerationParts;
  readonly #folder: string;
  /** Distinguishes the versions of this session from those of an earlier one, which may have had other weights. */
  readonly #session = Date.now().toString(36);
  readonly #written = new Set<string>();
  /** Versions, in their order. */
  readonly #published: number[] = [];

  constructor(parts: GenerationParts, generator: RemoteGenerator, folder: string) {
    this.#parts = parts;
    this.generator = generator;
    this.#folder = folder;
  }

  async publish(): Promise<void> {
    const { policy, run } = this.#parts;
    const { version } = policy;
    if (version === this.#published.at(-1)) return;
    const name = `${run}-${this.#session}-v${version}`;
    const folder = join(this.#folder, name);
    if (!policy.publish) throw new Error(`generation.engine: the policy does not write its weights`);
    await policy.publish(`${folder}.partial`);
    await rename(`${folder}.partial`, folder);
    this.#written.add(folder);
    await this.generator.publish(version, name, folder);
    this.#published.push(version);
    for (const old of this.generator.takeOldFolders()) {
      await rm(old, { recursive: true, force: true });
      this.#written.delete(old);
    }
  }

  check(step: number, episodes: readonly Episode[]): Promise<Metrics> {
    const { settings, policy } = this.#parts;
    const { generator } = this;
    return checkedGap(settings, policy, step, episodes, { generator, published: this.#published });
  }

  takeMetrics(): Metrics {
    return this.generator.takeMetrics();
  }

  async close(): Promise<void> {
    await this.generator.close();
    for (const folder of this.#written) await rm(folder, { recursive: true, force: true });
  }
}

function engineClient({ generation, policy }: RunSettings, url: string): EngineClient {
  const { engine, timeout_s, token_env } = generation;
  const token = secretOf('generation.token_env', token_env);
  const options: EngineHttpOptions = { url, timeoutMs: 1000 * timeout_s, ...(token ? { token } : {}) };
  if (engine === 'ragen') return new RagenEngine(options);
  const adapters = policy.lora !== null;
  return engine === 'sglang' ? new SglangEngine(options, adapters) : new VllmEngine(options, adapters);
}

/** Programs that play, and how to stop them. */
export interface OpenPrograms {
  readonly agent: EpisodeAgent;
  close(): Promise<void>;
}

/** The trained policy, and the source of its samples. */
export interface AnsweringPolicy {
  readonly policy: TrainedPolicy;
  readonly generator: Generator;
}

/**
 * Lets the program of `rollout.agent` play with a policy; undefined where the trainer plays itself.
 * @param busy measures the time in which the policy has something to answer
 * @throws Error where the policy has no chat template, or the verifier's key is not set
 */
export async function openPrograms(
  { rollout }: RunSettings,
  { tokenizer }: RunContext,
  answering: AnsweringPolicy,
  note: (text: string) => void,
  busy?: IntervalMeter,
): Promise<OpenPrograms | undefined> {
  const { agent } = rollout;
  if (!agent) return undefined;
  if (!tokenizer.chatTemplate) {
    throw new Error(
      'rollout.agent: programs send conversations, and the policy has no chat template for them',
    );
  }
  const gateway = await Gateway.open(
    {
      command: agent.command,
      workers: agent.workers,
      processes: agent.processes,
      timeoutMs: 1000 * agent.timeout_s,
      maxCalls: agent.max_calls,
      maxTokens: agent.max_tokens,
      verifierKey: secretOf('rollout.agent.verifier_key_env', agent.verifier_key_env),
    },
    gatewayPolicy(answering, busy),
    tokenizer,
  );
  return { agent: programAgent(gateway, agent.attempts, note), close: () => gateway.close() };
}

/** The policy that answers: the trained one, or remote engines, which return all tokens at once. */
function gatewayPolicy({ policy, generator }: AnsweringPolicy, busy?: IntervalMeter): GatewayPolicy {
  const generate: GatewayPolicy['generate'] =
    generator === policy
      ? (request, watch) => policy.generate(request, watch)
      : async (request, watch) => {
          const generation = await generator.generate(request);
          const { tokenIds, logProbs, versions } = generation;
          if (watch) {
            for (let i = 0; i < tokenIds.length; i++) {
              watch({ tokenId: tokenIds[i], logProb: logProbs[i], version: versions[i] });
            }
          }
          return generation;
        };
  return {
    maxSequenceLength: policy.maxSequenceLength,
    vocabularySize: policy.vocabularySize,
    generate: (request, watch) => {
      const work = () => generate(request, watch);
      return busy ? busy.during(work) : work();
    },
    release: id => generator.release(id),
  };
}
