import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ProblemCode } from '../../env-server/problems.ts';

/** Most characters of a line. */
const MAX_LINE_LENGTH = 600;

/** A player's knowledge of a violation: its session, and its last requests and replies. */
export interface PlayerHistory {
  readonly sessionId: string;
  readonly lines: readonly string[];
}

/**
 * Writes the evidence of a violation to a file: requests and replies of the player with their times, and everything that
 * servers wrote to the session in the store, in the store's order, with epochs and the replicas that took it.
 * @param data folder of the server
 * @returns the file
 */
export function keepEvidence(what: string, { sessionId, lines }: PlayerHistory, data: string): string {
  const file = join(tmpdir(), `ragen-soak-${process.pid}-${sessionId}.txt`);
  const stored = storedEntries(join(data, 'valkey'), sessionId);
  writeFileSync(
    file,
    `${[what, '', ...lines, '', `in the store: ${stored.length}`, ...stored].join('\n')}\n`,
  );
  return file;
}

/** Commands that a Valkey with an append-only file has carried out on the stream of a session, oldest first. */
export function storedEntries(folder: string, sessionId: string): string[] {
  const files = join(folder, 'appendonlydir');
  if (!existsSync(files)) return [];
  const names = readdirSync(files).filter(name => name.endsWith('.incr.aof'));
  return names
    .flatMap(name => [...commandsOf(readFileSync(join(files, name)))])
    .filter(([, key]) => key === `ragen:s:${sessionId}`)
    .map(([name, , ...rest]) => `${name} ${rest.join(' ')}`.slice(0, MAX_LINE_LENGTH));
}

/** Commands in the Redis protocol; one that is not complete ends them. */
function* commandsOf(bytes: Buffer): Generator<string[]> {
  let at = 0;
  const number = (): number => {
    const end = bytes.indexOf('\r\n', at);
    const value = end < 0 ? Number.NaN : Number(bytes.toString('latin1', at + 1, end));
    at = end + 2;
    return value;
  };
  while (at < bytes.length) {
    const command: string[] = [];
    for (let left = number(); left > 0; left--) {
      const length = number();
      if (Number.isNaN(length) || at + length > bytes.length) return;
      command.push(bytes.toString('utf8', at, at + length));
      at += length + 2;
    }
    if (command.length === 0) return;
    yield command;
  }
}

/** Problems after which the same request is sent again. */
export const AGAIN = new Set<ProblemCode>([
  'draining',
  'worker_unavailable',
  'too_many_sessions',
  'too_many_requests',
  'remote_unavailable',
  'step_timeout',
  // The store that replicas share starts again; nothing was acknowledged, and the request key keeps it from happening twice.
  'storage_failed',
]);
/** Problems of a service that may hang up. */
export const OF_SERVICE = new Set<ProblemCode>(['remote_failed', 'environment_fault']);
export const GONE = new Set<ProblemCode>(['unknown_session', 'session_expired']);
/** Operations that open sessions. Those that their client does not hear of in time expire. */
export const OPENING = new Set(['create', 'clone']);

/** Counters and state shared by all players of a soak. */
export interface SoakCounters {
  steps: number;
  retries: number;
  /** Sessions that were gone because nobody had used them for long. */
  expired: number;
  verified: number;
  replayed: number;
  readonly problems: Map<ProblemCode, number>;
  /** Number of times the server, or a part of it, was killed. */
  kills: number;
  /** Idle time after which sessions may have expired, in milliseconds. */
  readonly ttlMs: number;
}
