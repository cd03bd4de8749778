import type { Json, JsonObject } from '../../../shared/json.ts';

/**
 * What is journaled: each operation that changed a session, as soon as it has changed it and before its reply leaves.
 *
 * A session counts its records: `n` is 1 for `open` and grows by one with each. Its row in the database stores the `n`
 * that it covers. A reader skips records up to that, applies those that follow without a gap, and stops at a gap (see
 * `SessionContinuity`). So a record may be written twice, and files may be read in any order that keeps that of each
 * session.
 *
 * Sessions are deterministic: seed, configuration and actions give the same states again. So most records hold the
 * request, and replaying means carrying it out once more. Where that would not give the same (an environment that asks
 * a service, a checker with a time limit, a reset or step that takes the outside into account), the record holds what
 * came of it: `transition` instead of `step`, and `episode` in `open` and `reset`. Faults are recorded as such,
 * as time and memory limits do not strike at the same place twice.
 *
 * | kind | body | replaying it |
 * |---|---|---|
 * | `open` | {@link OpenBody} | makes the session; `like` copies the beginning of one opened just before |
 * | `step` | the action | takes the step |
 * | `keyed` | {@link KeyedStepBody} | takes the step and remembers the reply under the key |
 * | `transition` | {@link TransitionBody} | sets state, generator, reward and end |
 * | `fault` | none | ends the episode as failed |
 * | `reset` | {@link ResetBody} | begins an episode |
 * | `snapshot`, `restore` | {@link SnapshotBody} | takes, or goes back to, the snapshot |
 * | `acknowledge` | none | the client has seen where a session stands that was rolled back |
 * | `reply` | {@link ReplyBody} | remembers a reply of the session under its key |
 * | `end` | {@link EndBody} | ends the session |
 * | `clientReply` | {@link ClientReplyBody} | remembers a reply that concerns no session yet; `n` is 0 and the id `-` |
 *
 * Refused operations change nothing and are not recorded.
 */
export const RECORD_KINDS = {
  open: 'o',
  step: 's',
  keyed: 'k',
  transition: 't',
  fault: 'f',
  reset: 'r',
  snapshot: 'p',
  restore: 'b',
  acknowledge: 'a',
  reply: 'y',
  end: 'e',
  clientReply: 'c',
} as const;

export type RecordKind = keyof typeof RECORD_KINDS;

/** Session id of records without a session. */
export const NO_SESSION = '-';

/** The request key of an operation, with its input as `ReplyMemory` compares it. */
export interface KeyFields {
  readonly key?: string;
  readonly asked?: string;
}

/** A new session. Times in milliseconds since the epoch. */
export interface OpenBody {
  readonly serial: number;
  readonly owner: string;
  readonly group_id: string | null;
  readonly env_id: string;
  /** Definition of the environment that it plays. */
  readonly edition: string;
  /** The effective configuration, including every default. */
  readonly config: JsonObject;
  readonly wrappers: readonly Json[];
  readonly format: string;
  readonly created_at: number;
  readonly ttl_ms: number;
  readonly deadline: number;
  /** The effective seed, even where the server drew it. */
  readonly seed: number;
  readonly options: JsonObject;
  /**
   * The first episode as plain data, where a reset would not reproduce it: clones, and environments that depend on
   * services.
   */
  readonly episode?: JsonObject;
  /** Id of the session with the same beginning, which the same operation opened before it. */
  readonly like?: string;
  /** Seed of its stream, if it begins in the state of `like` with another generator. */
  readonly dynamics_seed?: number;
  /** Reason why it does not survive the process. */
  readonly lost?: string;
}

export interface KeyedStepBody extends KeyFields {
  readonly key: string;
  readonly action: Json;
  /** Absent where only the action was asked. */
  readonly asked?: string;
}

/** A step with its outcome. */
interface TransitionBody extends KeyFields {
  readonly action: Json;
  readonly state: Json;
  /** The generator after the step, `Random.state`. */
  readonly random: readonly number[];
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly info: JsonObject;
  /** True if the step has begun another episode by itself. */
  readonly restarted?: true;
}

interface ResetBody extends KeyFields {
  /** The effective seed. */
  readonly seed: number;
  readonly options: JsonObject;
  /** The episode as plain data, where a reset would not reproduce it. */
  readonly episode?: JsonObject;
}

interface SnapshotBody extends KeyFields {
  readonly snapshot_id: string;
  /** Seed of all randomness from there on; only for `restore`. */
  readonly dynamics_seed?: number;
}

interface ReplyBody extends Required<KeyFields> {
  readonly operation: string;
  readonly reply: Json;
}

interface ClientReplyBody extends ReplyBody {
  readonly owner: string;
}

interface EndBody {
  readonly owner: string;
  /** `session_expired`, `session_closed` or `session_lost`. */
  readonly ending: string;
  readonly reason: string | null;
  /** Milliseconds since the epoch. */
  readonly forget_at: number;
}

interface RecordBodies {
  readonly open: OpenBody;
  readonly step: Json;
  readonly keyed: KeyedStepBody;
  readonly transition: TransitionBody;
  readonly fault: undefined;
  readonly reset: ResetBody;
  readonly snapshot: SnapshotBody;
  readonly restore: SnapshotBody;
  readonly acknowledge: undefined;
  readonly reply: ReplyBody;
  readonly end: EndBody;
  readonly clientReply: ClientReplyBody;
}

export type RecordBody<K extends RecordKind> = RecordBodies[K];

/** A record in a replay. */
export type JournalRecord = {
  [K in RecordKind]: {
    readonly kind: K;
    readonly sessionId: string;
    readonly n: number;
    readonly body: RecordBody<K>;
  };
}[RecordKind];

const KIND_OF = new Map(Object.entries(RECORD_KINDS).map(([kind, letter]) => [letter, kind as RecordKind]));

/** A record as read. */
export interface RecordText {
  readonly letter: (typeof RECORD_KINDS)[RecordKind];
  readonly sessionId: string;
  readonly n: number;
  /** JSON of its body; empty where it has none. */
  readonly text: string;
}

export type ReplayedRecord = JournalRecord & RecordText;

/**
 * Parses the text of a record. Its body is parsed on each access, so that reading a journal takes no more memory than
 * its text.
 * @returns undefined for a kind that this version does not know
 */
export function recordOf(read: RecordText): ReplayedRecord | undefined {
  const kind = KIND_OF.get(read.letter);
  if (kind === undefined) return undefined;
  return {
    ...read,
    kind,
    get body() {
      return read.text === '' ? undefined : JSON.parse(read.text);
    },
  } as ReplayedRecord;
}
