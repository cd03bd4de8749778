import type { RunSettings } from '../../config/settings.ts';
import { FileReward } from '../../rollout/rewards/file-reward.ts';
import { HttpReward } from '../../rollout/rewards/http-reward.ts';
import type { RewardHook } from '../../rollout/rewards/reward-hook.ts';

/** The reward hook of a run; undefined where only the environment rewards. @throws Error for a token that is not set */
export function openReward({ rollout: { reward } }: RunSettings): RewardHook | undefined {
  if (reward === null) return undefined;
  const { mode, token_env } = reward;
  const timeoutMs = 1000 * reward.timeout_s;
  if (reward.file !== null) {
    return new FileReward({ file: reward.file, mode, timeoutMs, memoryMb: reward.memory_mb });
  }
  const token = token_env === null ? undefined : process.env[token_env];
  if (token_env !== null && !token)
    throw new Error(`rollout.reward.token_env: the variable ${token_env} is not set`);
  return new HttpReward({
    url: reward.url!,
    mode,
    timeoutMs,
    maxBytes: reward.max_bytes,
    ...(token === undefined ? {} : { token }),
  });
}
