import type { ComponentType } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import { type Address, formatAddress, RUN_VIEWS, type RunView } from '../address.ts';
import { useRun } from '../data/hooks.ts';
import { percent } from '../format.ts';
import type { RunViewProps } from './parts.ts';
import { openCompare, StateChip, Status, useKeys } from './parts.ts';

const NAMES: { readonly [view in RunView]: string } = {
  overview: 'Overview',
  replay: 'Replay',
  episodes: 'Episodes',
  episode: 'Episode',
  filter: 'Filter',
  system: 'System',
  log: 'Log',
  settings: 'Settings',
};

/** Each view comes with its own scripts: a run is shown before the boards of its episodes are there. */
const VIEWS: { readonly [view in RunView]: Load<RunViewProps> } = {
  overview: async () => (await import('./overview-view.ts')).OverviewView,
  replay: async () => (await import('./replay-view.ts')).ReplayView,
  episodes: async () => (await import('./episodes-view.ts')).EpisodesView,
  episode: async () => (await import('./episode-view.ts')).EpisodeView,
  filter: async () => (await import('./filter-view.ts')).FilterView,
  system: async () => (await import('./system-view.ts')).SystemView,
  log: async () => (await import('./log-view.ts')).LogView,
  settings: async () => (await import('./settings-view.ts')).SettingsView,
};

/** A fade at the edge of tabs that do not fit. */
const FADE_WIDTH = 32;
const FADE = `padding-right: ${FADE_WIDTH}px; mask: linear-gradient(to left, transparent, #000 ${FADE_WIDTH}px)`;

/** The pages of one run. */
export function RunPages({ address }: { readonly address: Address }) {
  const store = useRun(address.run!);
  const { detail } = store;
  const row = detail?.row;
  // Another program's files have episodes only.
  const isForeign = row?.run.format !== undefined;
  const view = isForeign && address.view !== 'episode' ? 'episodes' : (address.view as RunView);
  const { view: View, error: unloaded } = useLazy(VIEWS[view]);
  const error = store.error ?? unloaded;
  const bar = useRef<HTMLElement>(null);
  useEffect(() => {
    const { current: nav } = bar;
    const chosen = nav?.querySelector<HTMLElement>('[aria-current]');
    if (!nav || !chosen) return;
    const end = chosen.offsetLeft - nav.offsetLeft + chosen.offsetWidth;
    nav.scrollLeft = end - nav.clientWidth + FADE_WIDTH;
  }, [view]);
  const tabs = isForeign ? (['episodes'] as const) : RUN_VIEWS.filter(name => name !== 'episode');
  const pages = html`<${Status} error=${error} loading=${!(detail && View) && !error} />
    ${detail && View && html`<${View} store=${store} address=${address} />`}`;
  useKeys({ c: () => !isForeign && openCompare([address.run!]) });
  // An episode's page omits the run's title, because it needs the height.
  if (view === 'episode') return html`<div class="stack">${pages}</div>`;
  const last = row?.validations.at(-1);
  return html`<div class="stack">
    <div class="run-bar">
      <h1 class="cut large" title=${address.run}>${address.run}</h1>
      ${row && (isForeign ? html`<span class="chip">${row.run.format}</span>` : html`<${StateChip} row=${row} />`)}
      ${last && html`<p class="cut large run-success"><b>${percent(last.success)}</b>${last.low !== undefined && last.high !== undefined && html` <span class="fine">${percent(last.low).split('\u00a0')[0]} to ${percent(last.high).split('\u00a0')[0]}</span>`}</p>`}
      <nav ref=${bar} class="tabs" style=${FADE} aria-label="Views of the run">
        ${tabs.map(
          name => html`<a key=${name} href=${formatAddress({ view: name, run: address.run })}
            aria-current=${name === view ? 'page' : undefined}>${NAMES[name]}</a>`,
        )}
      </nav>
    </div>
    ${pages}
  </div>`;
}

/** Loads the scripts of a view, and returns the view. */
export type Load<Props> = () => Promise<(props: Props) => unknown>;

/** Views that are loaded, by how. */
const loaded = new Map<unknown, unknown>();

interface LazyView<Props> {
  /** Undefined until its scripts have come. */
  readonly view?: ComponentType<Props>;
  /** Why they cannot be loaded. */
  readonly error?: string;
}

/** A view that loads its scripts when it is first shown. */
function useLazy<Props>(load: Load<Props>): LazyView<Props> {
  const [failure, setFailure] = useState<{ readonly of?: unknown; readonly message?: string }>({});
  const [, redraw] = useState(0);
  useLayoutEffect(() => {
    if (loaded.has(load)) return;
    load().then(
      view => {
        loaded.set(load, view);
        redraw(version => version + 1);
      },
      (error: Error) => setFailure({ of: load, message: error.message }),
    );
  }, [load]);
  return {
    view: loaded.get(load) as ComponentType<Props> | undefined,
    error: failure.of === load ? failure.message : undefined,
  };
}

interface LazyProps {
  readonly load: Load<{ readonly address: Address }>;
  readonly address: Address;
}

/** A view of several runs that loads its scripts when it is first shown. */
export function Lazy({ load, address }: LazyProps) {
  const { view, error } = useLazy(load);
  return view ? html`<${view} address=${address} />` : html`<${Status} error=${error} loading=${!error} />`;
}
