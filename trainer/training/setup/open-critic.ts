import { join } from 'node:path';
import { loraConfig } from '../../config/sections/lora.ts';
import type { RunSettings } from '../../config/settings.ts';
import { ActorCritic, CRITIC_FOLDER } from '../../policy/actor-critic.ts';
import { LocalPolicy } from '../../policy/local-policy.ts';
import { computeOptions } from './open-policy.ts';

/**
 * The policy of a run with the critic that its settings ask for, or alone. A critic learns what the policy learns of its model:
 * all weights, or with `policy.lora` adapters, over the policy's own base unless it begins as another model.
 * @param checkpoint folder of the policy to go on from; undefined where its own training begins
 * @throws ModelConfigError, SafetensorsError or RangeError for a model that does not fit the settings
 */
export async function withCritic(
  settings: RunSettings,
  actor: LocalPolicy,
  checkpoint: string | undefined,
): Promise<LocalPolicy | ActorCritic> {
  const { critic: own, lora, context } = settings.policy;
  if (own === null) return actor;
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
        `policy.critic.init: ${own.init} knows ${critic.vocabularySize} tokens, the policy ${actor.vocabularySize}`,
      );
    }
    if (checkpoint !== undefined) await critic.load(join(checkpoint, CRITIC_FOLDER));
    return new ActorCritic(actor, critic);
  } catch (error) {
    await critic.close();
    throw error;
  }
}
