import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { SampleRecord, TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import type { Episode, EpisodePrefix, EpisodeSample } from '../../rollout/episode.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import type { RunFolder } from '../../training/run-folder/run-folder.ts';

/** The stored episodes of an iteration, or of a validation after one. */
export interface RecordedFile {
  readonly kind: 'train' | 'validation';
  readonly step: number;
  readonly records: readonly TrajectoryRecord[];
}

const NAME = /^(train|validation)-(\d+)\.jsonl$/;

/** Files of stored episodes of a run, oldest first. */
export function recordedSteps(
  run: Pick<RunFolder, 'trajectories'>,
): { kind: RecordedFile['kind']; step: number }[] {
  return readdirSync(run.trajectories)
    .flatMap(name => {
      const [, kind, step] = NAME.exec(name) ?? [];
      return kind === undefined ? [] : [{ kind: kind as RecordedFile['kind'], step: Number(step) }];
    })
    .sort((a, b) => a.step - b.step || a.kind.localeCompare(b.kind));
}

/** @throws Error for an unreadable file */
export function readRecorded(
  run: Pick<RunFolder, 'trajectories'>,
  kind: RecordedFile['kind'],
  step: number,
): RecordedFile {
  const file = join(run.trajectories, `${kind}-${String(step).padStart(6, '0')}.jsonl`);
  return { kind, step, records: readJsonLines(file) as TrajectoryRecord[] };
}

/** The episode in a record, with every token as sampled. */
export function episodeOfRecord(record: TrajectoryRecord): Episode {
  const samples = record.samples.map(sampleOf);
  const empty = sampleOf({ token_ids: [], mask: [], log_probs: [], versions: [] });
  return {
    episodeId: record.episode_id,
    environmentId: record.env_id,
    tag: record.tag,
    groupId: record.group_id,
    member: record.member,
    seed: record.seed,
    ...(record.dynamics_seed === undefined ? {} : { dynamicsSeed: record.dynamics_seed }),
    ...(record.reseeds
      ? { reseeds: record.reseeds.map(({ step, dynamics_seed }) => ({ step, dynamicsSeed: dynamics_seed })) }
      : {}),
    ...(record.nodes ? { nodes: record.nodes } : {}),
    ...(record.continuations ? { continuations: record.continuations } : {}),
    ...(record.prefix ? { prefix: record.prefix as EpisodePrefix } : {}),
    server: record.server,
    turns: record.turns.map(turn => ({
      state: turn.state,
      ...(turn.structured === undefined ? {} : { structured: turn.structured }),
      actionsLeft: turn.actions_left,
      actions: turn.actions,
      ...(turn.sent ? { sent: turn.sent } : {}),
      ...(turn.state_key === undefined ? {} : { stateKey: turn.state_key }),
      reward: turn.reward,
      penalty: turn.penalty,
      ...(turn.rewards ? { rewards: turn.rewards } : {}),
      info: turn.info,
      response: turn.llm_response,
      rawResponse: turn.llm_raw_response,
      tokens: turn.tokens,
      sample: turn.sample,
      ...(turn.finish_reason ? { finishReason: turn.finish_reason as 'stop' | 'length' | 'context' } : {}),
    })),
    success: record.success,
    terminated: record.terminated,
    ...(record.truncation ? { truncation: record.truncation } : {}),
    ...(record.ended_by === undefined ? {} : { endedBy: record.ended_by }),
    ...(record.following ? { following: Int32Array.from(record.following) } : {}),
    unsuccessful: record.truncated,
    ...(record.final_state === undefined ? {} : { finalState: record.final_state }),
    ...(record.final_structured === undefined ? {} : { finalStructured: record.final_structured }),
    ...(samples.at(-1) ?? empty),
    ...(samples.length > 1 ? { samples } : {}),
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
