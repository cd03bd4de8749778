import { parentPort, workerData } from 'node:worker_threads';
import { openDatabase } from '../database.ts';
import { TurnFile, type TurnFileHead } from '../journal/turn-file.ts';
import { SessionRows } from '../session-rows.ts';
import { SqliteStore } from '../sqlite-store.ts';
import {
  type DatabaseWrites,
  type HealthNews,
  plainError,
  type ThreadMessage,
  type ThreadSetup,
  type WriteRequest,
} from './protocol.ts';

/** Milliseconds that a write waits for another process's write; only its callers wait with it. */
const PATIENCE_MS = 10_000;

const { folder, synced, sealed } = workerData as ThreadSetup;
const port = parentPort!;

let openedRows: SessionRows | undefined;
let openedStore: SqliteStore | undefined;
let openedTurns: { readonly path: string; readonly file: TurnFile } | undefined;

function rows(): SessionRows {
  if (!openedRows) {
    openedRows = new SessionRows(folder);
    if (synced) openedRows.sync();
  }
  return openedRows;
}

function store(): SqliteStore {
  const report = (health: HealthNews) => post({ health });
  openedStore ??= new SqliteStore(openDatabase(folder, PATIENCE_MS), {
    succeeded: () => report({ state: 'succeeded' }),
    failed: (_part, error) => report({ state: 'failed', error: plainError(error) }),
    waiting: (_part, bytes) => report({ state: 'waiting', bytes }),
  });
  return openedStore;
}

function turnsOf(path: string, head: TurnFileHead): TurnFile {
  if (openedTurns?.path !== path) {
    openedTurns?.file.close();
    openedTurns = undefined;
    openedTurns = { path, file: new TurnFile(path, head) };
  }
  return openedTurns.file;
}

const WRITES: DatabaseWrites = {
  writeSessions: changes => rows().write(changes, () => Atomics.load(sealed, 0) === 0),
  writeTurns(path, head, turns) {
    const file = turnsOf(path, head);
    const begun = performance.now();
    file.write(turns);
    return performance.now() - begun;
  },
  putEnvironment: (environment, entry) => store().putEnvironment(environment, entry),
  removeEnvironment: (envId, entry) => store().removeEnvironment(envId, entry),
  note: entry => store().note(entry),
  close() {
    openedRows?.close();
    openedStore?.close();
    openedTurns?.file.close();
  },
};

function post(message: ThreadMessage): void {
  port.postMessage(message);
}

port.on('message', ({ id, name, given }: WriteRequest) => {
  try {
    const write = WRITES[name] as (...given: readonly unknown[]) => unknown;
    post({ id, result: write(...given) });
  } catch (error) {
    post({ id, error: plainError(error) });
  }
});
