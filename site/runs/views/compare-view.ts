import { useEffect, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import { Menu } from '../../components/menu.ts';
import { listOf, listText } from '../../compute/list-text.ts';
import type { MetricsReply, RunDetail } from '../../server/reader/run-reader.ts';
import { type Address, formatAddress } from '../address.ts';
import { Chart } from '../charts/chart.ts';
import { ChartTools } from '../charts/chart-tools.ts';
import { chartViewOf, knownAxes } from '../charts/chart-view.ts';
import { useSource } from '../data/hooks.ts';
import { percent, short } from '../format.ts';
import {
  AXIS_METRICS,
  type Compared,
  curveOf,
  differingKeys,
  type Grouping,
  groupsOf,
  settingsOf,
} from './compare-groups.ts';
import { GroupTest } from './group-test.ts';
import { choose, PageTitle, Panel, Select, Status } from './parts.ts';
import { RunPicker } from './run-picker.ts';
import { settingText } from './runs-columns.ts';

const MAX_RUNS = 16;
const METRICS = [
  'val-env/success',
  'train/success',
  'train/return',
  'actor/entropy',
  'train/response_length',
  'actor/grad_norm',
];

/** Several runs: their curves (groups with a band), a test of two groups, and their settings. */
export function CompareView({ address }: { readonly address: Address }) {
  const { query } = address;
  const ids = listOf(query.runs ?? '')
    .filter(id => id !== '')
    .slice(0, MAX_RUNS);
  const { metric = '', first, second } = query;
  const names = metric === '' ? METRICS : [metric];
  const { runs, error } = useRuns(ids, [...names, ...AXIS_METRICS]);
  const pick = (chosen: readonly string[]) =>
    choose({ runs: listText(chosen.slice(0, MAX_RUNS)), first: '', second: '' }, true);
  if (ids.length < 2) {
    return html`<div class="stack"><${PageTitle} view="compare" />
      <${Panel} title="Choose two runs or more"><${RunPicker} chosen=${ids} onChange=${pick} /><//></div>`;
  }
  const different = differingKeys(runs);
  const grouping: Grouping = query.seeds === 'apart' ? 'runs' : query.band || 'seeds';
  const groups = groupsOf(runs, grouping);
  const view = chartViewOf(query);
  const known = [...new Set(runs.flatMap(({ detail }) => detail.metrics))].sort();
  const axes = knownAxes(known.filter(name => runs.every(({ detail }) => detail.metrics.includes(name))));
  const bands = groups.some(({ members }) => members.length > 1);
  return html`<div class="stack">
    <${PageTitle} view="compare" />
    <div class="row run-controls">
      <div class="row grow outcomes">${ids.map(
        id => html`<span class="chip" key=${id}><a href=${formatAddress({ view: 'overview', run: id })}>${id}</a>
        <button type="button" class="quiet small" aria-label=${`Take ${id} out`} onClick=${() => pick(ids.filter(one => one !== id))}>✕</button></span>`,
      )}</div>
      <${Menu} label="Add runs"><${RunPicker} chosen=${ids} onChange=${pick} /><//>
    </div>
    <${Status} error=${error} loading=${runs.length === 0 && !error} />
    ${
      runs.length > 0 &&
      html`<div class="row low controls">
        <${Select} label="One curve for" value=${grouping} onChange=${(value: string) => choose({ seeds: value === 'runs' ? 'apart' : '', band: value === 'runs' || value === 'seeds' ? '' : value, first: '', second: '' }, true)}
          options=${[['seeds', 'runs that differ by seed alone'], ['runs', 'each run'], ...different.map(key => [key, `each ${key}`] as const)]} />
        <${Select} label="Metric" value=${metric} options=${[['', 'the usual ones'], ...known.map(name => [name, name] as const)]} onChange=${(value: string) => choose({ metric: value }, true)} />
        <${ChartTools} view=${view} axes=${axes} />
      </div>
      ${bands && html`<p class="fine">Bands: one standard deviation over the runs of a curve, at the steps that all of them have.</p>`}
      <div class="tiles" style="--tile: 30rem">${names
        .filter(name => runs.some(({ metrics }) => metrics.series[name]))
        .map(
          name => html`<div class="panel" key=${name}><${Chart} title=${name} legend=${true} height=${names.length === 1 ? 420 : 240} view=${view} exact=${name.startsWith('val-')}
          format=${/success/.test(name) ? percent : short} range=${/success/.test(name) ? [0, 1] : undefined} curves=${groups.map(group => curveOf(group, name, view.axis))} /></div>`,
        )}</div>
      <${GroupTest} groups=${groups} metric=${names[0]} first=${first} second=${second} />
      <${Differences} runs=${runs} different=${different} against=${query.settings ?? ''} />`
    }
  </div>`;
}

function useRuns(
  ids: readonly string[],
  names: readonly string[],
): { readonly runs: readonly Compared[]; readonly error?: string } {
  const source = useSource();
  const [state, setState] = useState<{ readonly runs: readonly Compared[]; readonly error?: string }>({
    runs: [],
  });
  const key = listText([...ids, ...names]);
  useEffect(() => {
    let current = true;
    const reading = ids.map(async id => ({
      detail: await source.get<RunDetail>('run', { id }),
      metrics: await source.get<MetricsReply>('metrics', { id, names: listText(names) }),
    }));
    Promise.all(reading).then(
      runs => current && setState({ runs }),
      (error: Error) => current && setState({ runs: [], error: error.message }),
    );
    return () => {
      current = false;
    };
  }, [source, key]);
  return state;
}

interface DifferencesProps {
  readonly runs: readonly Compared[];
  readonly different: readonly string[];
  /** `defaults` to show differences from the defaults. */
  readonly against: string;
}

/** Settings in which runs differ from one another, or from the defaults. */
function Differences({ runs, different, against }: DifferencesProps) {
  const all = runs.map(settingsOf);
  const changed = runs.map(({ detail }) => detail.row.run.changed);
  const isChanged = (key: string, i: number) =>
    changed[i]?.some(name => key === name || key.startsWith(`${name}.`)) ?? true;
  const every = [...new Set(all.flatMap(settings => [...settings.keys()]))];
  const fromDefaults = every.filter(key => runs.some((_, i) => all[i].has(key) && isChanged(key, i)));
  const keys = against === 'defaults' ? fromDefaults : different;
  const known = changed.every(names => names !== undefined);
  const tools =
    known &&
    html`<${Select} label="From" value=${against} options=${[['', 'one another'], ['defaults', 'the defaults']]} onChange=${(value: string) => choose({ settings: value }, true)} />`;
  return html`<${Panel} title="Settings that differ" class="wide" tools=${tools}>
    ${
      keys.length === 0
        ? html`<p>All settings are the same.</p>`
        : html`<div class="scroll-x" tabindex="0" role="region" aria-label="Settings that differ"><table>
      <thead><tr><th scope="col">Setting</th>${runs.map(({ detail }) => html`<th scope="col" key=${detail.row.id}>${detail.row.id}</th>`)}</tr></thead>
      <tbody>${keys.map(
        key =>
          html`<tr key=${key}><th scope="row"><code>${key}</code></th>${all.map((settings, i) => html`<td key=${i}><code>${settingText(settings.get(key))}</code>${known && !isChanged(key, i) && html` <span class="fine">default</span>`}</td>`)}</tr>`,
      )}</tbody>
    </table></div>`
    }
  <//>`;
}
