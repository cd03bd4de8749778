import type { RunSettings } from '../../config/settings.ts';
import { Gateway } from '../../gateway/gateway.ts';
import { programAgent } from '../../gateway/program-agent.ts';
import type { GatewayPolicy } from '../../gateway/rollout-model.ts';
import type { EpisodeAgent } from '../../rollout/episode-agent.ts';
import type { IntervalMeter } from '../../rollout/interval-meter.ts';
import type { RunContext } from './run-context.ts';

/** Programs that play, and their end. */
export interface OpenPrograms {
  readonly agent: EpisodeAgent;
  close(): Promise<void>;
}

/**
 * Lets the program of `rollout.agent` play with a policy; undefined where the trainer plays itself.
 * @param busy measures the time in which the policy has something to answer
 * @throws Error where the policy has no chat template, or the verifier's key is not set
 */
export async function openPrograms(
  { rollout }: RunSettings,
  { tokenizer }: RunContext,
  policy: GatewayPolicy,
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
  const metered: GatewayPolicy = {
    maxSequenceLength: policy.maxSequenceLength,
    vocabularySize: policy.vocabularySize,
    generate: (request, watch) => {
      const generate = () => policy.generate(request, watch);
      return busy ? busy.during(generate) : generate();
    },
    release: id => policy.release(id),
  };
  const gateway = await Gateway.open(
    {
      command: agent.command,
      workers: agent.workers,
      processes: agent.processes,
      timeoutMs: 1000 * agent.timeout_s,
      maxCalls: agent.max_calls,
      maxTokens: agent.max_tokens,
      verifierKey: verifierKey(agent.verifier_key_env),
    },
    metered,
    tokenizer,
  );
  return { agent: programAgent(gateway, agent.attempts, note), close: () => gateway.close() };
}

function verifierKey(variable: string | null): string | undefined {
  if (variable === null) return undefined;
  const key = process.env[variable];
  if (!key) throw new Error(`rollout.agent.verifier_key_env: the variable ${variable} is not set`);
  return key;
}
