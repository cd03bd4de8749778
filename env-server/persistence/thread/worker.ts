import { parentPort, workerData } from 'node:worker_threads';
import type { CallReply } from '../../../shared/scheduling/thread-calls.ts';
import { openDatabase } from '../database.ts';
import { EnvironmentRows } from '../environment-rows.ts';
import { type Turn, TurnFile, type TurnFileHead } from '../journal/turn-file.ts';
import { type RowWrite, SessionRows } from '../session-rows.ts';

/** Start data of a thread. */
export interface ThreadSetup {
  /** Folder of the database. */
  readonly folder: string;
  /** True if written data survives a crash of the machine. */
  readonly synced: boolean;
  /** One shared number: 1 when nothing may be written any more. */
  readonly sealed: Int32Array;
}

export interface WriteRequest {
  readonly id: number;
  readonly name: keyof DatabaseWrites;
  readonly given: readonly unknown[];
}

export type WriteReply = { readonly id: number } & CallReply;

/** Milliseconds that a write waits for another process's write; only its callers wait with it. */
const PATIENCE_MS = 10_000;

const { folder, synced, sealed } = workerData as ThreadSetup;
const port = parentPort!;

let openedRows: SessionRows | undefined;
let openedEnvironments: EnvironmentRows | undefined;
let openedTurns: { readonly path: string; readonly file: TurnFile } | undefined;

function rows(): SessionRows {
  if (!openedRows) {
    openedRows = new SessionRows(folder);
    if (synced) openedRows.sync();
  }
  return openedRows;
}

function environments(): EnvironmentRows {
  openedEnvironments ??= new EnvironmentRows(openDatabase(folder, PATIENCE_MS));
  return openedEnvironments;
}

function turnsOf(path: string, head: TurnFileHead): TurnFile {
  if (openedTurns?.path !== path) {
    openedTurns?.file.close();
    openedTurns = undefined;
    openedTurns = { path, file: new TurnFile(path, head) };
  }
  return openedTurns.file;
}

type EnvironmentWrites = Pick<EnvironmentRows, 'putEnvironment' | 'removeEnvironment' | 'note' | 'tryDisk'>;

/** The writes of a thread; each is done as a whole or not at all. */
export interface DatabaseWrites extends EnvironmentWrites {
  writeSessions(changes: readonly RowWrite[]): void;
  /** Adds turns to a file of the journal, and returns how long that took, in milliseconds. */
  writeTurns(path: string, head: TurnFileHead, turns: readonly Turn[]): number;
  /** Closes the databases. */
  close(): void;
}

const WRITES: DatabaseWrites = {
  writeSessions: changes => rows().write(changes, () => Atomics.load(sealed, 0) === 0),
  writeTurns(path, head, turns) {
    const file = turnsOf(path, head);
    const begun = performance.now();
    file.write(turns);
    return performance.now() - begun;
  },
  putEnvironment: (...given) => environments().putEnvironment(...given),
  removeEnvironment: (...given) => environments().removeEnvironment(...given),
  note: entries => environments().note(entries),
  tryDisk: (...given) => environments().tryDisk(...given),
  close() {
    openedRows?.close();
    openedEnvironments?.close();
    openedTurns?.file.close();
  },
};

port.on('message', ({ id, name, given }: WriteRequest) => {
  let reply: WriteReply;
  try {
    const write = WRITES[name] as (...given: readonly unknown[]) => unknown;
    reply = { id, result: write(...given) };
  } catch (error) {
    const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
    reply = { id, error: error as Error, fields: { code, errcode } };
  }
  port.postMessage(reply);
});
