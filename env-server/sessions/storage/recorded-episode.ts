import type { Json, JsonObject } from '../../../shared/json.ts';
import type {
  KeyedStepBody,
  KeyFields,
  OpenBody,
  RecordBody,
  RecordKind,
} from '../../persistence/journal/records.ts';
import { actionsOf, logOf } from '../episodes/action-log.ts';
import { dynamicsSeedOf, type EpisodeRestart, type EpisodeState, weighed } from '../episodes/episode.ts';
import { ENVELOPE, fingerprint } from '../replies/reply-cache.ts';
import type { StoredSettings } from './stored-session.ts';

/** The input of an operation under a request key. */
export interface KeyedInput {
  readonly key: string;
  readonly input: object;
}

/** A step as its record holds it. The input usually follows from the action, and is then not written. */
export function recordedStep(action: Json, { key, input }: KeyedInput): KeyedStepBody {
  return asksActionOnly(input) ? { action, key } : { action, key, asked: fingerprint(input) };
}

function asksActionOnly(input: object): boolean {
  for (const key in input) if (key !== 'action' && key !== 'session_id' && !ENVELOPE.has(key)) return false;
  return true;
}

/** Key and fingerprint of a recorded step. */
export function keyOfRecordedStep(
  session_id: string,
  { action, key, asked = fingerprint({ action, session_id }) }: KeyedStepBody,
): Required<KeyFields> {
  return { key, asked };
}

/** Journals operations on sessions of the type `S`. */
export interface Recorder<S> {
  append<K extends RecordKind>(session: S, kind: K, body: RecordBody<K>): void;
}

/** An episode in a record, with all of its actions. */
interface RecordedEpisode extends Omit<EpisodeState, 'seed' | 'options' | 'restart' | 'log' | 'bytes'> {
  readonly restart: EpisodeRestart | null;
  readonly actions: readonly Json[];
}

/** Converts an episode to its recorded form. */
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

/** The first record of a session: its settings, and its first episode. */
export function openBody(
  settings: StoredSettings,
  edition: string,
  episode: EpisodeState,
  { lost, like }: Pick<OpenBody, 'lost' | 'like'>,
): OpenBody {
  const beginning =
    like === undefined
      ? { episode: recordedEpisode(episode) }
      : { like, dynamics_seed: dynamicsSeedOf(episode) };
  return {
    serial: settings.serial,
    owner: settings.owner,
    group_id: settings.groupId,
    env_id: settings.envId,
    edition,
    config: settings.config,
    wrappers: settings.wrappers as unknown as readonly Json[],
    format: settings.format,
    created_at: settings.createdAt,
    ttl_ms: settings.ttlMs,
    deadline: settings.deadline,
    seed: episode.seed,
    options: episode.options,
    ...(lost === undefined ? beginning : { lost }),
  };
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
