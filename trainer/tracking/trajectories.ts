import { join } from 'node:path';
import { withoutImages } from '../../shared/observation-parts.ts';
import type { GroupRecord, SampleRecord, TrajectoryRecord } from '../../shared/run-folder/run-files.ts';
import { type Episode, type EpisodeSample, episodeReturn, samplesOf } from '../rollout/episode.ts';
import { appendJsonLine, reopenJsonLines, writeJsonLines } from './jsonlines.ts';

/** Larger states are left out: they are only for pictures. */
const MAX_STRUCTURED_BYTES = 64 * 1024;
/** Advantages, returns and entropies are written with this many decimal places. */
const DECIMALS = 1e4;

/** Training data about the tokens of a sample; arrays over its tokens. */
interface TokenNotes {
  readonly entropies?: ArrayLike<number>;
  readonly advantages?: ArrayLike<number>;
  readonly values?: ArrayLike<number>;
  readonly returns?: ArrayLike<number>;
  /** log-probability of each token under the reference policy. */
  readonly reference?: ArrayLike<number>;
}

/** Training data about episodes besides the sampled tokens. */
export interface TrajectoryNotes {
  /** Record of an episode's group. */
  readonly group: (episode: Episode) => GroupRecord | undefined;
  readonly tokens: (sample: EpisodeSample) => TokenNotes | undefined;
}

/** Writes the trajectories of a run, and the text of each of their tokens once. */
export class TrajectoryWriter {
  readonly #folder: string;
  readonly #decode: (ids: ArrayLike<number>) => string;
  readonly #tokensFile: string;
  readonly #known: Set<number>;

  /**
   * @param run the folder of trajectories and the file of token texts
   * @param decode text of tokens
   */
  constructor(
    run: { readonly trajectories: string; readonly tokens: string },
    decode: (ids: ArrayLike<number>) => string,
  ) {
    this.#folder = run.trajectories;
    this.#decode = decode;
    this.#tokensFile = run.tokens;
    this.#known = new Set((reopenJsonLines(this.#tokensFile) as [number, string][]).map(([id]) => id));
  }

  /**
   * Writes complete episodes, one a line: every turn with its state, response, actions, rewards and penalty, and every
   * sample with token ids, behavior log-probabilities and policy versions. A file of the same name is replaced.
   * @returns the file
   */
  write(
    kind: 'train' | 'validation',
    step: number,
    episodes: readonly Episode[],
    notes?: TrajectoryNotes,
  ): string {
    for (const episode of episodes) {
      for (const { tokenIds, top } of samplesOf(episode)) {
        this.#learnTexts(tokenIds);
        for (const { tokenIds: likeliest } of top?.values() ?? []) this.#learnTexts(likeliest);
      }
    }
    const file = join(this.#folder, `${kind}-${String(step).padStart(6, '0')}.jsonl`);
    writeEpisodes(file, episodes, notes);
    return file;
  }

  #learnTexts(ids: Int32Array): void {
    for (const id of ids) {
      if (this.#known.has(id)) continue;
      this.#known.add(id);
      appendJsonLine(this.#tokensFile, [id, this.#decode([id])]);
    }
  }
}

/** Writes episodes into a file of any name, one a line. */
export function writeEpisodes(file: string, episodes: readonly Episode[], notes?: TrajectoryNotes): void {
  writeJsonLines(
    file,
    episodes.map(episode => trajectoryRecord(episode, notes)),
  );
}

/** An episode's record in trajectory files; keys as in RAGEN. Pictures are named, not kept. */
export function trajectoryRecord(episode: Episode, notes?: TrajectoryNotes): TrajectoryRecord {
  const group = notes?.group(episode);
  return {
    episode_id: episode.episodeId,
    env_id: episode.environmentId,
    tag: episode.tag,
    group_id: episode.groupId,
    member: episode.member ?? 0,
    seed: episode.seed,
    ...(episode.dynamicsSeed === undefined ? {} : { dynamics_seed: episode.dynamicsSeed }),
    ...(episode.reseeds
      ? {
          reseeds: episode.reseeds.map(({ step, dynamicsSeed }) => ({ step, dynamics_seed: dynamicsSeed })),
        }
      : {}),
    ...(episode.nodes ? { nodes: episode.nodes } : {}),
    ...(episode.continuations ? { continuations: episode.continuations } : {}),
    ...(episode.prefix ? { prefix: episode.prefix } : {}),
    server: episode.server,
    success: episode.success,
    terminated: episode.terminated,
    truncated: episode.unsuccessful,
    ...(episode.truncation ? { truncation: episode.truncation } : {}),
    ...(episode.endedBy === undefined ? {} : { ended_by: episode.endedBy }),
    ...(episode.following ? { following: Array.from(episode.following) } : {}),
    return: episodeReturn(episode),
    ...(group ? { filter: { score: group.score, std: group.std, kept: group.kept } } : {}),
    turns: episode.turns.map(turn => ({
      state: withoutImages(turn.state),
      ...structuredField('structured', turn.structured),
      ...structuredField('between', turn.between),
      actions_left: turn.actionsLeft,
      actions: turn.actions,
      ...(turn.sent ? { sent: turn.sent } : {}),
      ...(turn.stateKey === undefined ? {} : { state_key: turn.stateKey }),
      ...(turn.actionNames ? { action_names: turn.actionNames } : {}),
      reward: turn.reward,
      penalty: turn.penalty,
      ...(turn.rewards ? { rewards: turn.rewards } : {}),
      info: turn.info,
      llm_response: turn.response,
      llm_raw_response: turn.rawResponse,
      tokens: turn.tokens,
      sample: turn.sample ?? 0,
      ...(turn.finishReason ? { finish_reason: turn.finishReason } : {}),
    })),
    final_state: episode.finalState && withoutImages(episode.finalState),
    ...structuredField('final_structured', episode.finalStructured),
    samples: samplesOf(episode).map(sample => sampleRecord(sample, notes?.tokens(sample))),
  };
}

function structuredField<K extends string, V>(key: K, state: V | undefined): { readonly [key in K]?: V } {
  if (state === undefined) return {};
  if (Buffer.byteLength(JSON.stringify(state)) > MAX_STRUCTURED_BYTES) return {};
  return { [key]: state } as { readonly [key in K]: V };
}

function sampleRecord(sample: EpisodeSample, notes: TokenNotes = {}): SampleRecord {
  const { entropies, advantages, returns, reference } = notes;
  const values = notes.values ?? sample.values;
  const rounded = (name: string, list: ArrayLike<number> | undefined) =>
    list
      ? {
          [name]: Array.from(sample.lossMask, (on, t) =>
            on ? Math.round(list[t] * DECIMALS) / DECIMALS : 0,
          ),
        }
      : {};
  return {
    token_ids: Array.from(sample.tokenIds),
    mask: Array.from(sample.lossMask),
    log_probs: Array.from(sample.logProbs),
    versions: Array.from(sample.versions),
    ...rounded('entropies', entropies),
    ...rounded('advantages', advantages),
    // Exact, since advantages follow from them.
    ...(values ? { values: Array.from(sample.lossMask, (on, t) => (on ? values[t] : 0)) } : {}),
    ...rounded('returns', returns),
    ...rounded('reference_log_probs', reference),
    ...(sample.top ? { top_logprobs: Array.from(sample.tokenIds, (_, t) => topOf(sample.top!.get(t))) } : {}),
  };
}

type LikeliestTokens = NonNullable<ReturnType<NonNullable<EpisodeSample['top']>['get']>>;

/** `[id, log-probability, id, …]` of the likeliest tokens; 0 where none are known. */
function topOf(top: LikeliestTokens | undefined): readonly number[] | 0 {
  if (!top) return 0;
  return Array.from(top.tokenIds).flatMap((id, i) => [id, Math.round(top.logProbs[i] * DECIMALS) / DECIMALS]);
}
