import type { Json } from '../../../shared/json.ts';
import type { Transition } from '../../environments/core/environment.ts';
import type { JournalRecord, KeyFields, OpenBody } from '../../persistence/journal/records.ts';
import type { WrapperChoice } from '../../wrappers/wrap.ts';
import type { Session } from '../session.ts';
import { episodeOfRecord, keyOfRecordedStep } from './recorded-episode.ts';
import type { SessionHistory, StoredSettings } from './stored-session.ts';

/** History of a new session. */
export const NEW_HISTORY: SessionHistory = {
  episodes: 1,
  snapshotsTaken: 0,
  snapshots: [],
  replies: [],
  droppedKeys: [],
  rolledBack: false,
  recorded: 1,
};

/** Settings in an `open` record. */
export function settingsOfRecord(id: string, body: OpenBody): StoredSettings {
  return {
    id,
    serial: body.serial,
    owner: body.owner,
    groupId: body.group_id,
    envId: body.env_id,
    config: body.config,
    wrappers: body.wrappers as unknown as readonly WrapperChoice[],
    format: body.format as StoredSettings['format'],
    createdAt: body.created_at,
    ttlMs: body.ttl_ms,
    deadline: body.deadline,
  };
}

/**
 * Repeats a recorded operation on a session. The caller handles records of a session's beginning and end.
 * @param viewOf the reply to a request that began an episode
 * @returns a promise only where the environment is asynchronous
 */
export function redo(
  session: Session,
  record: JournalRecord,
  viewOf: (session: Session) => Json,
): Promise<void> | undefined {
  switch (record.kind) {
    case 'step':
      return done(session.episode.redo(record.body));
    case 'keyed': {
      const { body } = record;
      const key = keyOfRecordedStep(session.id, body);
      return done(session.episode.redo(body.action), reply => remember(session, 'step', key, reply));
    }
    case 'transition': {
      const { action, random, ...transition } = record.body;
      const [a, b, c, d] = random;
      const result = session.episode.follow(action, transition as Transition<Json>, [a, b, c, d]);
      remember(session, 'step', record.body, result);
      break;
    }
    case 'fault':
      session.episode.fail();
      break;
    case 'reset': {
      const { seed, options, episode } = record.body;
      session.begin(episodeOfRecord(seed, options, episode!));
      remember(session, 'reset', record.body, viewOf(session));
      break;
    }
    case 'snapshot': {
      const snapshot_id = session.keep(session.episode.capture());
      remember(session, 'snapshot', record.body, { snapshot_id });
      break;
    }
    case 'restore':
      session.restore(record.body.snapshot_id, record.body.dynamics_seed);
      remember(session, 'restore', record.body, viewOf(session));
      break;
    case 'acknowledge':
      session.acknowledge();
      break;
    case 'reply':
      session.replies.remember(record.body);
      break;
  }
  return undefined;
}

function remember(session: Session, operation: string, { key, asked }: KeyFields, reply: unknown): void {
  if (key === undefined || asked === undefined) return;
  session.replies.remember({ key, operation, asked, reply: reply as Json });
}

/** A promise only where there is something to wait for. */
function done<T>(value: T | Promise<T>, then?: (value: T) => void): Promise<void> | undefined {
  if (value instanceof Promise) return value.then(then);
  then?.(value);
  return undefined;
}
