import type { Annotations, CheckpointRequest, ControlCommand } from '../../../shared/run-folder/requests.ts';
import {
  ask,
  failureOf,
  isLocked,
  type RequestOptions,
  setToken,
  textOfReply,
} from '../../components/request.ts';
import type { SiteAddresses } from '../../server/routes.ts';
import type { DroppedRuns } from './dropped-runs.ts';
import type { Query } from './exported-source.ts';

/** Messages of pages about a run, by the names of the routes. */
interface Messages {
  readonly annotations: Annotations;
  readonly control: ControlCommand;
  readonly checkpoint: CheckpointRequest;
}

/** Data source of the run pages: their server, or the files that `--export` wrote next to them. */
export interface Source {
  readonly site: SiteAddresses;
  /** Dispatches `locked` when the server shows something only with a token, or with another one. */
  readonly locks: EventTarget;
  /** @throws ServerAway, RequestFailed */
  get<T>(name: string, query?: Query): Promise<T>;
  /** @throws ServerAway, RequestFailed */
  post<T>(path: string, body: unknown): Promise<T>;
  /**
   * Replaces the annotations of a run, sends a command to its trainer, or asks one of its checkpoints.
   * @throws ServerAway, RequestFailed
   */
  send<T, To extends keyof Messages = keyof Messages>(
    to: To,
    id: string,
    message: Messages[To],
    signal?: AbortSignal,
  ): Promise<T>;
  /** Sets the token of later requests, while the tab is open. */
  setToken(token: string): void;
  /**
   * Reads other programs' trajectory files in the page.
   * @returns id of the run that shows them
   * @throws Error
   */
  drop(files: readonly File[]): Promise<string>;
  /** Reports the events of a run until the signal is aborted; does nothing without a server. */
  live(query: Query, onEvent: (name: string, data: unknown) => void, signal: AbortSignal): Promise<void>;
}

/** @throws ServerAway, RequestFailed when not even the addresses of the site can be read */
export async function openSource(): Promise<Source> {
  takeToken();
  const site = await readJson<SiteAddresses>('site.json');
  return withDropped(site.exported ? await exportedSource(site) : liveSource(site));
}

/** Takes the token from the address that the dashboard printed. */
function takeToken(): void {
  const token = new URLSearchParams(location.search).get('token');
  if (token === null) return;
  setToken(token);
  history.replaceState(null, '', `${location.pathname}${location.hash}`);
}

type OwnSource = Omit<Source, 'drop'>;

/** A source that also answers for files dropped onto the page. */
function withDropped(source: OwnSource): Source {
  let dropped: DroppedRuns | undefined;
  return {
    ...source,
    async get<T>(name: string, query: Query = {}) {
      if (!isDropped(query)) return source.get<T>(name, query);
      if (!dropped?.has(query.id))
        throw new Error('A file that was read in the page is gone after a reload: open it again.');
      return dropped.get(name, query) as Promise<T>;
    },
    async live(query, onEvent, signal) {
      if (!isDropped(query)) return source.live(query, onEvent, signal);
      await new Promise(resolve => signal.addEventListener('abort', resolve));
    },
    async drop(files) {
      const { DroppedRuns } = await import('./dropped-runs.ts');
      dropped ??= new DroppedRuns();
      return dropped.add(files);
    },
  };
}

const isDropped = ({ id }: Query): boolean => typeof id === 'string' && id.startsWith('dropped:');

function liveSource(site: SiteAddresses): OwnSource {
  const locks = new EventTarget();
  return {
    site,
    locks,
    async get<T>(name: string, query: Query = {}) {
      try {
        return await readJson<T>(`api/${name}${searchOf(query)}`);
      } catch (cause) {
        if (!isLocked(cause)) throw cause;
        locks.dispatchEvent(new Event('locked'));
        throw new Error('Write a token of this server into the field at the top of the page.', { cause });
      }
    },
    post: (path, body) => readJson(`${site.api}${path}`, { method: 'POST', body }),
    send(to, id, body, signal) {
      const method = to === 'annotations' ? 'PUT' : 'POST';
      return readJson(`api/${to}${searchOf({ id })}`, { method, body, signal });
    },
    setToken,
    live: (query, onEvent, signal) => readEvents(`api/live${searchOf(query)}`, onEvent, signal),
  };
}

async function exportedSource(site: SiteAddresses): Promise<OwnSource> {
  const { ExportedData } = await import('./exported-source.ts');
  const data = new ExportedData(readJson, readPacked);
  return {
    site,
    locks: new EventTarget(),
    get: <T>(name: string, query: Query = {}) => data.get(name, query) as Promise<T>,
    async post() {
      throw new Error('These pages are files. Start the dashboard with --server to play on.');
    },
    async send() {
      throw new Error('These pages are files: nothing can be written, and no trainer is behind them.');
    },
    setToken() {},
    async live() {},
  };
}

function searchOf(query: Query): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
}

async function readJson<T>(url: string, options?: RequestOptions): Promise<T> {
  const response = await ask(url, options);
  const text = await textOfReply(response);
  const failure = failureOf(response, text);
  if (failure) throw failure;
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

/** First bytes of gzip; a server that knows the format has already unpacked it. */
const GZIP = [0x1f, 0x8b];

/** Reads a file of compressed JSON. */
async function readPacked<T>(url: string): Promise<T> {
  const response = await fetch(url).catch(() => undefined);
  if (!response?.ok) throw new Error(`${url} cannot be read${response ? `: status ${response.status}` : ''}`);
  const bytes = await response.arrayBuffer();
  const start = new Uint8Array(bytes, 0, Math.min(GZIP.length, bytes.byteLength));
  if (!GZIP.every((byte, i) => start[i] === byte)) return JSON.parse(new TextDecoder().decode(bytes)) as T;
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return (await new Response(unpacked).json()) as T;
}

/** Reads server-sent events with `fetch`, which can send a token. */
async function readEvents(
  url: string,
  onEvent: (name: string, data: unknown) => void,
  signal: AbortSignal,
): Promise<void> {
  const response = await ask(url, { signal });
  if (!response.ok || !response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (waiting + value).split('\n\n');
    waiting = events.pop()!;
    for (const event of events) {
      const name = /^event: (.*)$/m.exec(event)?.[1];
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (name !== undefined && data !== undefined) onEvent(name, JSON.parse(data));
    }
  }
}
