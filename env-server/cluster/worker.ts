import { rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { printableLines } from '../../shared/printable.ts';
import { type App, createApp } from '../app.ts';
import { type FolderLock, holdFolder } from '../persistence/lock.ts';
import { stopperOf } from '../stopping.ts';
import { loadSdk } from '../transports/mcp/exchange.ts';
import { outliveRejections } from '../unhandled-rejections.ts';
import { SupervisorCounts } from './counts.ts';
import { sendHeartbeats } from './heartbeat.ts';
import type { ToSupervisor, ToWorker, WorkerStart } from './messages.ts';
import { WorkerChannels } from './worker-channels.ts';

/** The program of one of several processes that serve one port; its supervisor tells it what to do. */

/** Time for replies that have been made to reach their clients. */
const HANG_UP_MS = 5000;
const POLL_MS = 5;

const send = (message: ToSupervisor): void => {
  // What does not arrive had to do with a supervisor that has ended, of which this process is told.
  if (process.connected) process.send?.(message, undefined, undefined, () => undefined);
};

const counts = new SupervisorCounts(send);
/** It was told to stop before it had started. */
let stopReason: string | undefined;
/** Open connections. */
const sockets = new Set<Socket>();
/** Held until the process ends. */
let hold: FolderLock | undefined;
let started: { app: App; start: WorkerStart; stop: (reason: string) => void } | undefined;

// A terminal and service managers signal all processes; the supervisor passes on what is meant for them.
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => undefined);

process.on('message', (message: ToWorker, socket?: Socket) => {
  switch (message.kind) {
    case 'start':
      start(message.start).catch(fail);
      break;
    case 'connection':
      send({ kind: 'taken', number: message.number });
      if (socket) take(socket);
      break;
    case 'stop':
      if (started) started.stop(message.reason);
      else if (stopReason === undefined) stopReason = message.reason;
      else process.exit(1);
      break;
    case 'admitted':
      counts.admitted(message.number, message.refusal);
      break;
    case 'bytes':
      counts.hearBytes(message);
      break;
  }
});

// Without its supervisor nobody can reach it: what it holds is stored, and it ends.
process.once('disconnect', () => {
  started?.app.keepSessions();
  hold?.release();
  if (started) rmSync(started.start.folder, { recursive: true, force: true });
  process.exit(1);
});

async function start(start: WorkerStart): Promise<void> {
  const { settings, placement, folder, run, restarts } = start;
  if (settings.data !== '') hold = holdFolder(settings.data);
  const channels = new WorkerChannels(folder, placement);
  const app = await createApp(settings, { membership: { channels, counts, folder, run, restarts } });
  await loadSdk();
  // Connections come from the supervisor; that it listens starts all that Node.js and Fastify do for them.
  const path = join(folder, `${placement.index}.http`);
  rmSync(path, { force: true });
  await app.server.listen({ path });
  outliveRejections(app.log);
  const shutDown = async (graceMs: number) => {
    await app.shutDown(graceMs);
    await hangUp(app);
  };
  started = { app, start, stop: stopperOf({ ...app, shutDown }, settings) };
  sendHeartbeats(settings.workerSilenceSeconds, () => send({ kind: 'alive' }));
  if (stopReason === undefined) send({ kind: 'ready' });
  else started.stop(stopReason);
}

function take(socket: Socket): void {
  sockets.add(socket);
  socket.once('close', () => sockets.delete(socket));
  started!.app.server.server.emit('connection', socket);
  socket.resume();
}

/** Waits until the last replies have left: the server itself does not know of connections that it has not accepted. */
async function hangUp({ server }: App): Promise<void> {
  const end = performance.now() + HANG_UP_MS;
  while (sockets.size > 0 && performance.now() < end) {
    server.server.closeIdleConnections();
    await delay(POLL_MS);
  }
}

function fail(error: unknown): void {
  console.error(printableLines(`ragen-env-server: ${(error as Error).message}`));
  process.exit(1);
}
