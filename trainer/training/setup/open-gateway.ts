import { secretOf } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { Gateway, programAgent } from '../../gateway/gateway.ts';
import type { GatewayPolicy } from '../../gateway/rollout.ts';
import type { Generator } from '../../generation/generation.ts';
import type { TrainedPolicy } from '../../policy/policy.ts';
import type { IntervalMeter } from '../../rollout/collection/interval-meter.ts';
import type { EpisodeAgent } from '../../rollout/episode-agent.ts';
import type { RunContext } from './run-context.ts';

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
