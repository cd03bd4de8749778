import type { Json, JsonObject } from '../../../shared/json.ts';
import type { RecordBody, RecordKind } from '../../persistence/journal/records.ts';
import { actionsOf, logOf } from '../episodes/action-log.ts';
import { type EpisodeRestart, type EpisodeState, weighed } from '../episodes/episode.ts';

/** Journals what is done with sessions of the type `S`. */
export interface Recorder<S> {
  append<K extends RecordKind>(session: S, kind: K, body: RecordBody<K>): void;
}

/** An episode in a record: with all of its actions. */
interface RecordedEpisode extends Omit<EpisodeState, 'seed' | 'options' | 'restart' | 'log' | 'bytes'> {
  readonly restart: EpisodeRestart | null;
  readonly actions: readonly Json[];
}

/** An episode as records hold it. */
export function recordedEpisode({
  log,
  restart,
  seed: _seed,
  options: _options,
  bytes: _bytes,
  ...rest
}: EpisodeState): JsonObject {
  const recorded: RecordedEpisode = { ...rest, restart: restart ?? null, actions: actionsOf(log) };
  return recorded as unknown as JsonObject;
}

/** The episode of a record. */
export function episodeOfRecord(seed: number, options: JsonObject, recorded: JsonObject): EpisodeState {
  const { restart, actions, ...rest } = recorded as unknown as RecordedEpisode;
  return weighed({
    ...rest,
    seed,
    options,
    restart: restart ?? undefined,
    log: logOf(actions)(actions.length),
  });
}
