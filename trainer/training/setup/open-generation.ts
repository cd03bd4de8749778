import { mkdir, rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { secretOf } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Metrics } from '../../data/episode-metrics.ts';
import { Gateway, programAgent } from '../../gateway/gateway.ts';
import type { Generator } from '../../generation/generation.ts';
import type { EngineClient, EngineHttpOptions } from '../../generation/remote/engine-client.ts';
import { SglangEngine, VllmEngine } from '../../generation/remote/engines.ts';
import { RagenEngine } from '../../generation/remote/ragen-engine.ts';
import { RemoteGenerator } from '../../generation/remote/remote-generator.ts';
import type { Policy, PolicySampler } from '../../policy/policy.ts';
import type { EpisodeAgent } from '../../rollout/episode-agent.ts';
import { IntervalMeter } from '../../rollout/tally.ts';
import type { RunContext } from './run-context.ts';

/** The source of a run's samples, kept in step with the policy that learns. */
export interface GenerationPort {
  readonly generator: Generator;
  /** Present where samples may come from older weights than the trained ones: samples are then compared with scores. */
  readonly sampler?: PolicySampler;
  close(): Promise<void>;
}

export interface GenerationParts {
  readonly settings: RunSettings;
  /** Name of the run, the prefix of its version names. */
  readonly run: string;
  readonly context: Pick<RunContext, 'grammars'>;
  readonly policy: Policy;
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
    return { generator: policy, sampler: policy.sampler, close: async () => {} };
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
  const sampler = new RemoteSampler(parts, generator, folder);
  try {
    await generator.probe();
    await sampler.publish();
    return { generator, sampler, close: () => sampler.close() };
  } catch (error) {
    await sampler.close();
    throw error;
  }
}

/** Engines that take each version of the weights from a folder. */
class RemoteSampler implements PolicySampler {
  readonly published: number[] = [];
  readonly #generator: RemoteGenerator;
  readonly #parts: GenerationParts;
  readonly #folder: string;
  /** Distinguishes the versions of this session from those of an earlier one, which may have had other weights. */
  readonly #session = Date.now().toString(36);
  readonly #written = new Set<string>();

  constructor(parts: GenerationParts, generator: RemoteGenerator, folder: string) {
    this.#parts = parts;
    this.#generator = generator;
    this.#folder = folder;
  }

  async publish(): Promise<void> {
    const { policy, run } = this.#parts;
    const { version } = policy;
    if (version === this.published.at(-1)) return;
    const name = `${run}-${this.#session}-v${version}`;
    const folder = join(this.#folder, name);
    if (!policy.publish) throw new Error(`generation.engine: the policy does not write its weights`);
    await policy.publish(`${folder}.partial`);
    await rename(`${folder}.partial`, folder);
    this.#written.add(folder);
    await this.#generator.publish(version, name, folder);
    this.published.push(version);
    for (const old of this.#generator.takeOldFolders()) {
      await rm(old, { recursive: true, force: true });
      this.#written.delete(old);
    }
  }

  takeMetrics(): Metrics {
    return this.#generator.takeMetrics();
  }

  async close(): Promise<void> {
    await this.#generator.close();
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

/**
 * Lets the program of `rollout.agent` play with a policy; undefined where the trainer plays itself.
 * @param answering the trained policy, and the source of its samples
 * @param busy measures the time in which the policy has something to answer
 * @throws Error where the policy has no chat template, or the verifier's key is not set
 */
export async function openPrograms(
  { rollout }: RunSettings,
  { tokenizer }: RunContext,
  answering: { readonly policy: Policy; readonly generator: Generator },
  note: (text: string) => void,
  busy = new IntervalMeter(),
): Promise<OpenPrograms | undefined> {
  const { agent } = rollout;
  const { policy, generator } = answering;
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
    {
      maxSequenceLength: policy.maxSequenceLength,
      vocabularySize: policy.vocabularySize,
      generate: (request, watch) => busy.during(() => generator.generate(request, watch)),
      release: id => generator.release(id),
    },
    tokenizer,
  );
  return { agent: programAgent(gateway, agent.attempts, note), close: () => gateway.close() };
}
