import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { camelized } from '../../shared/camelized.ts';
import { isObject } from '../../shared/json.ts';
import { withoutImages } from '../../shared/observation-parts.ts';
import type {
  GroupRecord,
  SampleRecord,
  TrajectoryRecord,
  TurnRecord,
} from '../../shared/run-folder/run-files.ts';
import {
  type Episode,
  type EpisodePrefix,
  type EpisodeSample,
  episodeReturn,
  samplesOf,
  type Turn,
} from '../rollout/episode.ts';
import { appendJsonLine, readJsonLines, reopenJsonLines, writeJsonLines } from './jsonlines.ts';

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
  write(kind: RecordedKind, step: number, episodes: readonly Episode[], notes?: TrajectoryNotes): string {
    for (const episode of episodes) {
      for (const { tokenIds, top } of samplesOf(episode)) {
        this.#learnTexts(tokenIds);
        for (const { tokenIds: likeliest } of top?.values() ?? []) this.#learnTexts(likeliest);
      }
    }
    const file = join(this.#folder, nameOf(kind, step));
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

/** An episode's record in trajectory files; keys as in RAGEN. Pictures are named, not kept; JSON leaves out what is undefined. */
export function trajectoryRecord(episode: Episode, notes?: TrajectoryNotes): TrajectoryRecord {
  const { nodes, continuations, prefix, server, success, terminated, truncation, following } = episode;
  const group = notes?.group(episode);
  return {
    episode_id: episode.episodeId,
    env_id: episode.environmentId,
    tag: episode.tag,
    group_id: episode.groupId,
    member: episode.member ?? 0,
    seed: episode.seed,
    dynamics_seed: episode.dynamicsSeed,
    reseeds: episode.reseeds?.map(({ step, dynamicsSeed }) => ({ step, dynamics_seed: dynamicsSeed })),
    ...{ nodes, continuations, prefix, server, success, terminated },
    // RAGEN's meaning, not Gymnasium's: it ended without success.
    truncated: episode.terminated && !episode.success,
    truncation,
    ended_by: episode.endedBy,
    following: following && Array.from(following),
    return: episodeReturn(episode),
    filter: group && { score: group.score, std: group.std, kept: group.kept },
    turns: episode.turns.map(turnRecord),
    final_state: episode.finalState && withoutImages(episode.finalState),
    final_structured: bounded(episode.finalStructured),
    samples: samplesOf(episode).map(sample => sampleRecord(sample, notes?.tokens(sample))),
  };
}

function turnRecord(turn: Turn): TurnRecord {
  const { actions, sent, reward, penalty, rewards, info, tokens } = turn;
  return {
    state: withoutImages(turn.state),
    structured: bounded(turn.structured),
    between: bounded(turn.between),
    actions_left: turn.actionsLeft,
    ...{ actions, sent },
    state_key: turn.stateKey,
    action_names: turn.actionNames,
    ...{ reward, penalty, rewards, info },
    llm_response: turn.response,
    llm_raw_response: turn.rawResponse,
    tokens,
    sample: turn.sample ?? 0,
    finish_reason: turn.finishReason,
  };
}

function bounded<State>(state: State | undefined): State | undefined {
  if (state === undefined) return undefined;
  return Buffer.byteLength(JSON.stringify(state)) > MAX_STRUCTURED_BYTES ? undefined : state;
}

function sampleRecord(sample: EpisodeSample, notes: TokenNotes = {}): SampleRecord {
  const { top } = sample;
  const values = notes.values ?? sample.values;
  const sampled = (list: ArrayLike<number> | undefined, shown: (value: number) => number) =>
    list && Array.from(sample.lossMask, (on, t) => (on ? shown(list[t]) : 0));
  return {
    token_ids: Array.from(sample.tokenIds),
    mask: Array.from(sample.lossMask),
    log_probs: Array.from(sample.logProbs),
    versions: Array.from(sample.versions),
    entropies: sampled(notes.entropies, rounded),
    advantages: sampled(notes.advantages, rounded),
    // Exact, since advantages follow from them.
    values: sampled(values, value => value),
    returns: sampled(notes.returns, rounded),
    reference_log_probs: sampled(notes.reference, rounded),
    top_logprobs: top && Array.from(sample.tokenIds, (_, t) => topOf(top.get(t))),
  };
}

const rounded = (value: number): number => Math.round(value * DECIMALS) / DECIMALS;

type LikeliestTokens = NonNullable<ReturnType<NonNullable<EpisodeSample['top']>['get']>>;

/** `[id, log-probability, id, …]` of the likeliest tokens; 0 where none are known. */
function topOf(top: LikeliestTokens | undefined): readonly number[] | 0 {
  if (!top) return 0;
  return Array.from(top.tokenIds).flatMap((id, i) => [id, rounded(top.logProbs[i])]);
}

/** Stored episodes are those of an iteration, or of a validation after one. */
type RecordedKind = 'train' | 'validation';

const NAME = /^(train|validation)-(\d+)\.jsonl$/;
const nameOf = (kind: RecordedKind, step: number): string => `${kind}-${String(step).padStart(6, '0')}.jsonl`;

/** Files of stored episodes of a run, oldest first. */
export function recordedSteps(run: {
  readonly trajectories: string;
}): { kind: RecordedKind; step: number }[] {
  return readdirSync(run.trajectories)
    .flatMap(name => {
      const [, kind, step] = NAME.exec(name) ?? [];
      return kind === undefined ? [] : [{ kind: kind as RecordedKind, step: Number(step) }];
    })
    .sort((a, b) => a.step - b.step || a.kind.localeCompare(b.kind));
}

/** The episodes of a file. @throws Error for an unreadable file, and a line that is not an episode */
export function readRecorded(
  run: { readonly trajectories: string },
  kind: RecordedKind,
  step: number,
): TrajectoryRecord[] {
  const file = join(run.trajectories, nameOf(kind, step));
  const records = readJsonLines(file);
  const wrong = records.findIndex(record => !isRecord(record));
  if (wrong !== -1)
    throw new Error(`${file}:${wrong + 1} is not an episode: it must have lists of turns and samples`);
  return records as TrajectoryRecord[];
}

const isRecord = (value: unknown): boolean =>
  isObject(value) && [value.turns, value.samples].every(list => Array.isArray(list) && list.every(isObject));

/** The episode in a record, with every token as sampled. */
export function episodeOfRecord(record: TrajectoryRecord): Episode {
  const { env_id, reseeds, prefix, truncated, following, filter: _, return: __, ...fields } = record;
  const samples = record.samples.map(sampleOf);
  return {
    ...camelized(fields),
    environmentId: env_id,
    ...(reseeds ? { reseeds: reseeds.map(camelized) } : {}),
    ...(prefix ? { prefix: prefix as EpisodePrefix } : {}),
    turns: record.turns.map(turnOf),
    ...(following ? { following: Int32Array.from(following) } : {}),
    ...(samples.at(-1) ?? sampleOf({ token_ids: [], mask: [], log_probs: [], versions: [] })),
    samples: samples.length > 1 ? samples : undefined,
  };
}

function turnOf({ llm_response, llm_raw_response, finish_reason, between: _, ...turn }: TurnRecord): Turn {
  return {
    ...camelized(turn),
    response: llm_response,
    rawResponse: llm_raw_response,
    finishReason: finish_reason as Turn['finishReason'],
  };
}

function sampleOf({ token_ids, mask, log_probs, versions, values }: SampleRecord): EpisodeSample {
  return {
    tokenIds: Int32Array.from(token_ids),
    lossMask: Uint8Array.from(mask),
    logProbs: Float32Array.from(log_probs),
    ...(values ? { values: Float32Array.from(values) } : {}),
    versions: Int32Array.from(versions),
  };
}
