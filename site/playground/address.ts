import { attempted, isObject, type Json, parseJson } from '../../shared/json.ts';
import type { PlayStart } from '../player/session-state.ts';

/** Current view: the part of the address after `#`. */
export type Address =
  | PlayAddress
  | WatchAddress
  | { readonly view: 'environments' }
  | { readonly view: 'register'; readonly envId?: string };

/** Live sessions, or one of them. */
export interface WatchAddress {
  readonly view: 'watch';
  readonly sessionId?: string;
  /** Filters of the wall, by environment, group and client; the size of its cards, and its page from 1. */
  readonly env?: string;
  readonly group?: string;
  readonly client?: string;
  readonly size?: string;
  readonly page?: number;
}

export type PlayAddress = { readonly view: 'play' } & PlayStart;

/** Choices of the wall of sessions. */
const FILTERS = ['env', 'group', 'client', 'size'] as const;
/** JSON parts of an address, and their content. */
const JSON_PARTS = ['config', 'wrappers', 'options', 'actions', 'reseeds'] as const;

/** @param hash `location.hash`; an unknown one leads to the play view */
export function parseAddress(hash: string): Address {
  const mark = hash.indexOf('?');
  const path = (mark < 0 ? hash : hash.slice(0, mark)).replace(/^#\/?/, '');
  const [view, ...rest] = path.split('/');
  const written = rest.join('/');
  const name = (attempted(() => decodeURIComponent(written)) ?? written) || undefined;
  const parameters = new URLSearchParams(mark < 0 ? '' : hash.slice(mark + 1));
  if (view === 'watch') return { view, sessionId: name, ...readFilters(parameters) };
  if (view === 'environments') return { view };
  if (view === 'register') return { view, envId: name };
  const parts = JSON_PARTS.map(part => [part, readPart(part, parameters.get(part))] as const);
  return {
    view: 'play',
    envId: name,
    preset: parameters.get('preset') ?? undefined,
    seed: seedOf(parameters.get('seed')),
    format: parameters.get('format') ?? undefined,
    dynamicsSeed: seedOf(parameters.get('dynamics_seed')),
    ...Object.fromEntries(parts.filter(([, value]) => value !== undefined)),
  };
}

function seedOf(text: string | null): number | undefined {
  return text !== null && /^\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined;
}

function readFilters(parameters: URLSearchParams): Omit<WatchAddress, 'view' | 'sessionId'> {
  const page = Number(parameters.get('page') ?? 1);
  return {
    ...Object.fromEntries(
      FILTERS.flatMap(name => (parameters.get(name) ? [[name, parameters.get(name)]] : [])),
    ),
    ...(Number.isSafeInteger(page) && page > 1 && { page }),
  };
}

function readPart(part: (typeof JSON_PARTS)[number], text: string | null): Json | undefined {
  const value = parseJson(text ?? '');
  const isList = part !== 'config' && part !== 'options';
  const fits = isList ? Array.isArray(value) : isObject(value);
  return fits ? (value as Json) : undefined;
}

/** The address as a link has it. */
export function formatAddress(address: Address): string {
  if (address.view === 'environments') return '#/environments';
  const name = address.view === 'watch' ? address.sessionId : address.envId;
  const path = `#/${address.view}${name === undefined ? '' : `/${encodeURIComponent(name)}`}`;
  const parameters = new URLSearchParams();
  if (address.view === 'watch') {
    for (const filter of FILTERS) if (address[filter]) parameters.set(filter, address[filter]);
    if (address.page !== undefined && address.page > 1) parameters.set('page', String(address.page));
  }
  if (address.view !== 'play') return String(parameters) === '' ? path : `${path}?${parameters}`;
  if (address.preset !== undefined) parameters.set('preset', address.preset);
  if (address.seed !== undefined) parameters.set('seed', String(address.seed));
  if (address.format !== undefined) parameters.set('format', address.format);
  if (address.dynamicsSeed !== undefined) parameters.set('dynamics_seed', String(address.dynamicsSeed));
  for (const part of JSON_PARTS) {
    const value = address[part];
    if (value !== undefined && Object.keys(value).length > 0) parameters.set(part, JSON.stringify(value));
  }
  const query = String(parameters);
  return query === '' ? path : `${path}?${query}`;
}
