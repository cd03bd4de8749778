import { randomInt } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { closing } from '../../../shared/closing.ts';
import type { Json } from '../../../shared/json.ts';
import { samplingDistribution } from '../../config/derived.ts';
import { overriddenSettings } from '../../config/load.ts';
import type { PlayOnStart } from '../../dashboard/checkpoint-route.ts';
import { type Agent, nameOf } from '../../rollout/agents/agent.ts';
import { playedTurns } from '../../rollout/branching/prefix.ts';
import { EnvironmentSession } from '../../rollout/environment-session.ts';
import { Play } from '../../rollout/play.ts';
import { PlayTally } from '../../rollout/tally.ts';
import { openProgress } from '../../tracking/progress.ts';
import { episodeOfRecord } from '../../tracking/trajectories.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';
import { policyPlayer } from '../evaluate/players.ts';
import { localSettings } from '../hub/local-models.ts';
import { stopRequests } from './child-program.ts';

/** Seconds for which an environment server may be away. */
const PATIENCE_S = 10;

/** The message to this program: an episode to play on from before a turn. */
export interface PlayOnOrder {
  /** Folders of the run and of the policy. */
  readonly run: string;
  readonly checkpoint: string;
  /** Address of the environment server. */
  readonly server: string;
  readonly start: PlayOnStart;
}

/** The message that answers: actions of the policy's turns. */
export type PlayOnResult = { readonly actions: readonly Json[] } | { readonly error: string };

/**
 * Brings a session to the state before a turn, takes the actions that a person took from there, and plays it to its end
 * with the prompts, the sampling and the caps of the run. The session keeps its random stream, so that its actions have
 * the same effects wherever they are repeated.
 */
async function playOn(order: PlayOnOrder, stop: AbortSignal): Promise<Json[]> {
  const { run, settings: own } = openRunFolder(order.run);
  const place = [
    `servers=${JSON.stringify([{ url: order.server }])}`,
    `rollout.server_patience_s=${PATIENCE_S}`,
  ];
  const progress = openProgress(process.stderr, 'silent');
  const { local: settings } = await localSettings(overriddenSettings(own, place, run.config), {
    progress,
    signal: stop,
  });
  const parts = { settings, note: () => {}, stop };
  await using player = closing(await policyPlayer(order.checkpoint, parts));
  const { servers, tags, collector, tokenizer } = player.context;
  const [{ agent }] = player.modes;
  if (!('respond' in agent)) throw new Error('a program played the episode: its state is its own');
  const { turn, actions } = order.start;
  const episode = episodeOfRecord(order.start.episode);
  const described = tags.find(({ tag }) => tag.name === episode.tag);
  if (!described) throw new Error(`the settings of the run have no tag ${episode.tag}`);
  const { tag, seedable, constrained, copyable } = described;
  if (!seedable) throw new Error(`${tag.environmentId} takes no seed, so nothing can be played again`);
  const { environmentId, config, options } = tag;
  const { seed, dynamicsSeed, groupId, member } = episode;
  const spec = { environmentId, config, options, seed, dynamicsSeed, copyable, tag: tag.name };
  const [session] = await EnvironmentSession.openGroup(
    servers,
    { ...spec, validActions: constrained, groupName: `${tag.name}/branch` },
    1,
  );
  let sequences = 0;
  const person = personAgent(agent);
  let play = Play.open({ groupId, tag: tag.name, seed, size: 1 }, member ?? 0, session, {
    ...{ described, prompt: collector.prompt(tag.name), tokenizer, agent: person },
    context: collector.context,
    sampling: { ...samplingDistribution(settings.rollout), stopStrings: settings.rollout.stop_strings },
    samplingSeed: randomInt(2 ** 31),
    newSequence: () => ++sequences,
    check: () => stop.throwIfAborted(),
    tally: new PlayTally(),
  });
  try {
    const reseeds = new Map(episode.reseeds?.map(({ step, dynamicsSeed }) => [step, dynamicsSeed]));
    for (const [i, played] of [...playedTurns(episode, turn), undefined].entries()) {
      const fresh = reseeds.get(play.session.actions.length);
      if (fresh !== undefined) {
        const { session } = play;
        const [branch] = await session.branch(1, fresh);
        play = play.fork(play.member, branch, [i]);
        await session.close();
      }
      if (played) await play.takeOver([played], 'handicap');
    }
    for (const action of actions) {
      if (!play.canGoOn) return [];
      person.next = action;
      await play.turn();
      const { sent, actions } = play.turns.at(-1)!;
      const names = (sent ?? actions).map(one => nameOf(one, described));
      if (!isDeepStrictEqual(names, [nameOf(action, described)]))
        throw new Error(`no response of the policy could take the action ${JSON.stringify(action)}`);
    }
    const taken = play.turns.length;
    // The policy has sampled none of the turns so far.
    await play.takeOver([], 'handicap');
    await play.toEnd();
    return play.turns.slice(taken).flatMap(({ actions }) => actions);
  } finally {
    await play.session.close();
  }
}

/** Responds with the next action of a person where there is one, and as the policy otherwise. */
function personAgent(policy: Agent): Agent & { next: Json | undefined } {
  return {
    next: undefined,
    async respond(turn) {
      const { next } = this;
      this.next = undefined;
      if (next === undefined) return policy.respond(turn);
      return { text: turn.episode.compose([nameOf(next, turn.episode)]), finishReason: 'stop' };
    },
    release: id => policy.release(id),
  };
}

using requests = stopRequests(() => {});
// The order keeps the program alive until it has come.
process.channel?.ref();
const [order] = await new Promise<[PlayOnOrder]>(found =>
  process.once('message', message => found([message as PlayOnOrder])),
);
const result: PlayOnResult = await playOn(order, requests.signal).then(
  actions => ({ actions }),
  error => ({ error: (error as Error).message }),
);
process.send?.(result, () => process.disconnect());
