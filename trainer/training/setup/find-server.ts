import { setTimeout as sleep } from 'node:timers/promises';
import { request } from 'undici';
import { ENV_SERVER } from '../../../shared/program.ts';
import { shownDuration } from '../../tracking/progress.ts';

/** Time limit of one request to a server, which may be busy, and the pause between two. */
const LOOK_MS = 5000;
const PAUSE_MS = 500;
/** Patience of commands that a person waits for. */
const COMMAND_PATIENCE_S = 10;

/** Settings of a run that finding a server uses. */
interface ServersToFind {
  readonly servers: readonly { readonly url: string }[];
  readonly rollout: { readonly server_patience_s: number };
}

/**
 * Waits until an environment server of the settings answers; after a first failed request it says so, and how to start
 * one. Call it before a run folder is made.
 * @param note shows a line to the user
 * @throws Error when none answers within `rollout.server_patience_s`; the signal's reason when it is aborted
 */
export async function findServer(
  { servers, rollout: { server_patience_s: patience } }: ServersToFind,
  note: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const since = performance.now();
  for (let look = 0; ; look++) {
    signal.throwIfAborted();
    const failures = await Promise.all(servers.map(({ url }) => whyAway(url)));
    if (failures.includes(undefined)) return;
    const missing = servers
      .map(({ url }, i) => `no environment server answers at ${url} (${failures[i]})`)
      .join('\n');
    const start = `Start one in another terminal: ${ENV_SERVER} --port ${portOf(servers[0].url)}`;
    if (performance.now() - since > 1000 * patience) throw new Error(`${missing}\n${start}`);
    if (look === 0)
      note(`${missing}\n${start}\nWaiting for it for up to ${shownDuration(patience)}; Ctrl-C gives up.`);
    await sleep(PAUSE_MS, undefined, { signal });
  }
}

/** {@link findServer} for commands that a person waits for: it gives up after ten seconds. */
export function findServerSoon(
  { servers, rollout }: ServersToFind,
  note: (text: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const server_patience_s = Math.min(COMMAND_PATIENCE_S, rollout.server_patience_s);
  return findServer({ servers, rollout: { server_patience_s } }, note, signal);
}

/** Why a server does not answer; undefined if it answers at all. */
async function whyAway(url: string): Promise<string | undefined> {
  try {
    const { body } = await request(`${url.replace(/\/$/, '')}/livez`, {
      headersTimeout: LOOK_MS,
      bodyTimeout: LOOK_MS,
      signal: AbortSignal.timeout(LOOK_MS),
    });
    await body.dump();
    return undefined;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === 'ECONNREFUSED' ? 'nothing listens there' : message || String(code);
  }
}

function portOf(url: string): string {
  const { port, protocol } = new URL(url);
  return port === '' ? (protocol === 'https:' ? '443' : '80') : port;
}
