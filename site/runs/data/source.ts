import type { Annotations } from '../../../shared/run-folder/annotations.ts';
import type { SiteAddresses } from '../../server/addresses.ts';
import type { Query } from './query.ts';

const TOKEN_KEY = 'ragen-token';

/** Something that could not be read, in words for the reader of the page. */
export class SourceError extends Error {}

/** Data source of the pages: their server, or the files that `--export` wrote next to them. */
export interface Source {
  readonly site: SiteAddresses;
  /** @throws SourceError */
  get<T>(name: string, query?: Query): Promise<T>;
  /** @throws SourceError */
  post<T>(path: string, body: unknown): Promise<T>;
  /** Replaces tags, note and archive mark of a run. @throws SourceError */
  annotate(id: string, annotations: Annotations): Promise<void>;
  /** Reports the events of a run until the signal is aborted; does nothing without a server. */
  live(query: Query, onEvent: (name: string, data: unknown) => void, signal: AbortSignal): Promise<void>;
}

/** @throws SourceError when not even the addresses of the site can be read */
export async function openSource(): Promise<Source> {
  const site = await readJson<SiteAddresses>('site.json');
  return site.exported ? exportedSource(site) : liveSource(site);
}

function liveSource(site: SiteAddresses): Source {
  return {
    site,
    get: (name, query = {}) => readJson(`api/${name}${searchOf(query)}`),
    post: (path, body) =>
      readJson(`${site.api}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    annotate: (id, annotations) =>
      readJson(`api/annotations${searchOf({ id })}`, {
        method: 'PUT',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(annotations),
      }),
    live: (query, onEvent, signal) => readEvents(`api/live${searchOf(query)}`, onEvent, signal),
  };
}

async function exportedSource(site: SiteAddresses): Promise<Source> {
  const { ExportedData } = await import('./exported-source.ts');
  const data = new ExportedData(readJson);
  return {
    site,
    get: <T>(name: string, query: Query = {}) => data.get(name, query) as Promise<T>,
    async post() {
      throw new SourceError('These pages are files. Start the dashboard with --server to play on.');
    },
    async annotate() {
      throw new SourceError('These pages are files: nothing can be written.');
    },
    async live() {},
  };
}

function searchOf(query: Query): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
}

function authorized(init: RequestInit = {}): RequestInit {
  const token = sessionStorage.getItem(TOKEN_KEY);
  return token === null ? init : { ...init, headers: { ...init.headers, authorization: `Bearer ${token}` } };
}

async function readJson<T>(url: string, init?: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(url, authorized(init));
  } catch {
    throw new SourceError('The server does not answer. Is it still running?');
  }
  const text = await response.text();
  let value: unknown;
  try {
    value = text === '' ? undefined : JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (response.ok) return value as T;
  const { detail, title } = (value ?? {}) as { readonly detail?: string; readonly title?: string };
  throw new SourceError(detail ?? title ?? `${url} answered with status ${response.status}`);
}

/** Reads server-sent events with `fetch`, which can carry a token. */
async function readEvents(
  url: string,
  onEvent: (name: string, data: unknown) => void,
  signal: AbortSignal,
): Promise<void> {
  const response = await fetch(url, authorized({ signal }));
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
