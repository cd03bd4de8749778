import { html } from '../../components/html.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { type Address, formatAddress, RUN_VIEWS, type RunView } from '../address.ts';
import { useRun } from '../data/hooks.ts';
import { duration } from '../format.ts';
import { EpisodeView } from './episode-view.ts';
import { EpisodesView } from './episodes-view.ts';
import { FilterView } from './filter-view.ts';
import { OverviewView } from './overview-view.ts';
import { StateChip, Status } from './parts.ts';
import { ReplayView } from './replay-view.ts';
import type { RunViewProps } from './run-view-props.ts';
import { SettingsView } from './settings-view.ts';
import { SystemView } from './system-view.ts';

const NAMES: { readonly [view in RunView]: string } = {
  overview: 'Overview',
  replay: 'Replay',
  episodes: 'Episodes',
  episode: 'Episode',
  filter: 'Filter and collapse',
  system: 'System',
  settings: 'Settings',
};

const VIEWS: { readonly [view in RunView]: (props: RunViewProps) => unknown } = {
  overview: OverviewView,
  replay: ReplayView,
  episodes: EpisodesView,
  episode: EpisodeView,
  filter: FilterView,
  system: SystemView,
  settings: SettingsView,
};

/** The pages of one run. */
export function RunPages({ address }: { readonly address: Address }) {
  const store = useRun(address.run!);
  const { detail, error } = store;
  const view = address.view as RunView;
  const tabs = RUN_VIEWS.filter(name => name !== 'episode');
  const row = detail?.row;
  const pages = html`<${Status} error=${error} loading=${!detail && !error} />
    ${detail && html`<${VIEWS[view]} store=${store} address=${address} />`}`;
  // An episode says itself where it is: it needs the height.
  if (view === 'episode') return html`<div class="page-body">${pages}</div>`;
  return html`<div class="page-body">
    <div class="title-row">
      <h1>${address.run}</h1>
      ${row && html`<${StateChip} state=${row.state} />`}
      ${row && html`<span class="fine" role="status">${progressOf(row)}</span>`}
    </div>
    <nav class="tabs" aria-label="Views of the run">
      ${tabs.map(
        name => html`<a key=${name} href=${formatAddress({ view: name, run: address.run })}
          aria-current=${name === view ? 'page' : undefined}>${NAMES[name]}</a>`,
      )}
    </nav>
    ${pages}
  </div>`;
}

/** Progress of a run, with the time it took or will take. */
function progressOf({ state, stage, step, steps, eta_s: left, seconds }: RunRow): string {
  const done = `step ${step} of ${steps}`;
  if (state === 'running') return `${stage}, ${done}${left === null ? '' : `, ${duration(left)} left`}`;
  return seconds > 0 ? `${done} after ${duration(seconds)}` : done;
}
