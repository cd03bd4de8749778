import type { Json, JsonObject } from '../../shared/json.ts';
import { sumComponents } from '../../shared/reward-components.ts';
import type { Schemas } from '../client/operations.ts';
import type { EnvironmentSession } from '../rollout/environment-session.ts';
import { type Episode, endOf, samplesOf, type Turn } from '../rollout/episode.ts';
import { type EpisodeAgent, type EpisodeSetting, ProgramFault } from '../rollout/episode-agent.ts';
import { mixSeed } from '../rollout/seeds.ts';
import type { GroupPlan } from '../rollout/tag.ts';
import type { Gateway } from './gateway.ts';
import { type MergedCalls, type ModelCall, mergeCalls, type ProgramTask, type Rollout } from './rollout.ts';

type StepRecord = Schemas['TrajectoryRecord'];

/** An episode played by a program, with the results of its calls. */
interface ProgramEpisode {
  readonly rollout: Rollout;
  readonly records: readonly StepRecord[];
  readonly attempts: number;
}

/**
 * The agent that lets a program play whole episodes through a gateway. Rewards are those that the environment server
 * recorded, or a verifier's where the run has one.
 * @param attempts attempts at an episode before its group is dropped
 * @param note called with a line for every failed attempt
 */
export function programAgent(gateway: Gateway, attempts: number, note: (text: string) => void): EpisodeAgent {
  return {
    async play(plan, member, session, setting) {
      for (let attempt = 1; ; attempt++) {
        setting.check();
        if (attempt > 1) await session.startAgain();
        try {
          const rollout = await attempted(gateway, plan, member, session, setting, attempt);
          const records = await recordsOf(session, rollout, gateway.settings.verifierKey === undefined);
          const episode = episodeOf({ rollout, records, attempts: attempt }, session, setting);
          setting.tally.envSteps += records.length - 1;
          for (const { lossMask } of samplesOf(episode))
            for (const on of lossMask) setting.tally.sampledTokens += on;
          return episode;
        } catch (error) {
          setting.check();
          if (!(error instanceof ProgramFault)) throw error;
          const what = `attempt ${attempt} of ${attempts} at ${plan.tag} with seed ${plan.seed} failed: ${error.message}`;
          note(what);
          if (attempt >= attempts) throw new ProgramFault(what, { cause: error });
        }
      }
    },
  };
}

async function attempted(
  gateway: Gateway,
  plan: GroupPlan,
  member: number,
  session: EnvironmentSession,
  { described, sampling, samplingSeed, tally, prompt, signal }: EpisodeSetting,
  attempt: number,
): Promise<Rollout> {
  const began = performance.now();
  const { responseLength } = prompt.task;
  // Another attempt samples other tokens.
  const seed = attempt === 1 ? samplingSeed : mixSeed(samplingSeed, attempt);
  try {
    return await gateway.play({
      plan,
      member,
      session: session.handle,
      task: taskOf(described, session.observation),
      sampling: { ...sampling, stopStrings: sampling.stopStrings ?? [], responseLength, seed },
      signal,
    });
  } finally {
    tally.agentMs += performance.now() - began;
  }
}

function taskOf({ tag, description }: EpisodeSetting['described'], observation: string): ProgramTask {
  const { actions, actionFormat, instruction } = description;
  return {
    env_id: tag.environmentId,
    instruction,
    observation,
    ...(actions ? { actions } : {}),
    ...(actionFormat === undefined ? {} : { action_format: actionFormat }),
    max_steps: tag.maxActionsPerTrajectory,
  };
}

/**
 * The server's record of the program's episode.
 * @throws ProgramFault for a program that asked nothing, did nothing, or began another episode
 */
async function recordsOf(
  session: EnvironmentSession,
  rollout: Rollout,
  mustAct: boolean,
): Promise<readonly StepRecord[]> {
  if (rollout.calls.length === 0) throw new ProgramFault('it ended without a call of the model');
  const { server, sessionId } = session.handle;
  const { records } = await server.batched('trajectory', { session_id: sessionId });
  const [reset, ...steps] = records;
  if (reset.episode_id !== session.episodeId) {
    throw new ProgramFault('it reset the session: a rollout is one episode');
  }
  if (mustAct && steps.length === 0) throw new ProgramFault('it ended without a move');
  if (!mustAct && rollout.reward === undefined) throw new ProgramFault('no verifier gave it a reward');
  return records;
}

function episodeOf(
  { rollout, records, attempts }: ProgramEpisode,
  session: EnvironmentSession,
  { described: { tag } }: EpisodeSetting,
): Episode {
  const { plan, member, calls } = rollout;
  const merged = mergeCalls(calls);
  const last = records.at(-1)!;
  const over = last.terminated === true || last.truncated === true;
  const success = over && last.info.success === true;
  const endedBy = over ? endOf(last.info as JsonObject, undefined) : undefined;
  return {
    episodeId: `${tag.name}/${plan.seed}/${plan.groupId}.${member}`,
    environmentId: tag.environmentId,
    tag: tag.name,
    groupId: plan.groupId,
    member,
    seed: plan.seed,
    server: session.server,
    ...(session.levelId === undefined ? {} : { levelId: session.levelId }),
    turns: turnsOf(rollout, records, merged),
    success,
    terminated: over,
    ...(endedBy === undefined ? {} : { endedBy }),
    unsuccessful: over && !success,
    finalState: textOf(last.observation),
    ...merged.samples.at(-1)!,
    ...(merged.samples.length > 1 ? { samples: merged.samples } : {}),
    program: {
      calls: calls.length,
      merges: merged.merges,
      retokenizedTokens: merged.retokenized,
      failedAttempts: attempts - 1,
    },
  };
}

/** One turn per call, with the steps that the program made between it and the next call. */
function turnsOf(rollout: Rollout, records: readonly StepRecord[], { places }: MergedCalls): Turn[] {
  const { calls, callsBefore } = rollout;
  const [reset, ...steps] = records;
  const last = calls.length - 1;
  const owners = steps.map(({ step }) => {
    const before = callsBefore.get(step);
    return before === undefined ? last : Math.min(last, Math.max(0, before - 1));
  });
  let state = textOf(reset.observation);
  return calls.map((call, index): Turn => {
    const own = steps.filter((_, i) => owners[i] === index);
    const earned = own.reduce((sum, { reward = 0 }) => sum + reward, 0);
    const turn = turnOf(call, state, own, places[index]);
    state = own.length > 0 ? textOf(own.at(-1)!.observation) : state;
    if (rollout.reward === undefined) return { ...turn, reward: earned };
    return { ...turn, reward: index === last ? rollout.reward : 0 };
  });
}

function turnOf(
  { text, finishReason }: ModelCall,
  state: string,
  steps: readonly StepRecord[],
  { tokens, sample }: MergedCalls['places'][number],
): Omit<Turn, 'reward'> {
  const rewards = sumComponents(steps.map(({ info }) => info ?? {}));
  return {
    state,
    ...(rewards ? { rewards } : {}),
    actionsLeft: 0,
    actions: steps.map(({ action }) => action as Json),
    penalty: 0,
    info: (steps.at(-1)?.info ?? {}) as JsonObject,
    response: text,
    rawResponse: text,
    tokens,
    sample,
    finishReason,
  };
}

function textOf(observation: StepRecord['observation']): string {
  return typeof observation === 'string' ? observation : JSON.stringify(observation);
}
