import { attempted } from '../../shared/json.ts';

/** Current view of the run pages: the part of the address after `#`. */
export interface Address {
  readonly view: View;
  /** Id of the run; absent in views of several runs. */
  readonly run?: string;
  /** Choices of the view: filters, episode, turn. */
  readonly query: Readonly<Record<string, string>>;
}

export const RUN_VIEWS = [
  'overview',
  'replay',
  'episodes',
  'episode',
  'filter',
  'system',
  'log',
  'settings',
] as const;
export type RunView = (typeof RUN_VIEWS)[number];
export type View = 'runs' | 'compare' | 'leaderboard' | RunView;

/** @param hash `location.hash`; an unknown one leads to the table of runs */
export function parseAddress(hash: string): Address {
  const [path, search = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const query = Object.fromEntries(new URLSearchParams(search));
  const [kind, id, view = 'overview'] = path.split('/');
  if (kind === 'compare' || kind === 'leaderboard') return { view: kind, query };
  if (kind !== 'run' || !id) return { view: 'runs', query };
  const known = RUN_VIEWS.find(name => name === view) ?? 'overview';
  return { view: known, run: attempted(() => decodeURIComponent(id)) ?? id, query };
}

/** The view as an address; empty choices are left out. */
export function formatAddress({ view, run, query = {} }: Partial<Address> & Pick<Address, 'view'>): string {
  const path =
    run === undefined ? view : `run/${encodeURIComponent(run)}${view === 'overview' ? '' : `/${view}`}`;
  const chosen = Object.entries(query).filter(([, value]) => value !== '');
  const search = chosen.length === 0 ? '' : `?${new URLSearchParams(chosen)}`;
  return `#/${path === 'runs' ? '' : path}${search}`;
}
