import { useState } from 'preact/hooks';
import { counted } from '../../../shared/text.ts';
import { Menu } from '../../components/buttons.ts';
import { html } from '../../components/html.ts';
import { useWork } from '../../components/store.ts';
import { withUnit } from '../../components/text.ts';
import { MAX_TESTED, pairedTest, type TestResult, unpairedTest } from '../../compute/permutation-test.ts';
import { listOf, listText } from '../../compute/run-query.ts';
import type { MetricsReply, RunDetail, RunsReply } from '../../server/reader/run-reader.ts';
import { type Address, formatAddress } from '../address.ts';
import { Chart, ChartTools } from '../charts/chart.ts';
import { chartViewOf, knownAxes } from '../charts/chart-view.ts';
import { useData, useSource } from '../data/hooks.ts';
import { percent, short } from '../format.ts';
import {
  AXIS_METRICS,
  type Compared,
  curveOf,
  differingKeys,
  type Grouping,
  groupsOf,
  lastCommon,
  type RunGroupOf,
  settingsOf,
} from './compare-groups.ts';
import { choose, PageTitle, Panel, Select, StateChip, Status } from './parts.ts';
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
    choose({ runs: listText(chosen.slice(0, MAX_RUNS)), first: '', second: '' });
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
    <div class="row">
      <div class="row grow outcomes">${ids.map(
        id => html`<span class="chip" key=${id}><a href=${formatAddress({ view: 'overview', run: id })}>${id}</a>
        <button type="button" class="quiet small" aria-label=${`Take ${id} out`} onClick=${() => pick(ids.filter(one => one !== id))}>✕</button></span>`,
      )}</div>
      <div class="push"><${Menu} label="Add runs"><${RunPicker} chosen=${ids} onChange=${pick} /><//></div>
    </div>
    <${Status} error=${error} loading=${runs.length === 0 && !error} />
    ${
      runs.length > 0 &&
      html`<div class="row low controls">
        <${Select} label="One curve for" value=${grouping} onChange=${(value: string) => choose({ seeds: value === 'runs' ? 'apart' : '', band: value === 'runs' || value === 'seeds' ? '' : value, first: '', second: '' })}
          options=${[['seeds', 'runs that differ by seed alone'], ['runs', 'each run'], ...different.map(key => [key, `each ${key}`] as const)]} />
        <${Select} label="Metric" value=${metric} options=${[['', 'the usual ones'], ...known.map(name => [name, name] as const)]} onChange=${(value: string) => choose({ metric: value })} />
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
  const read = async (id: string): Promise<Compared> => ({
    detail: await source.get<RunDetail>('run', { id }),
    metrics: await source.get<MetricsReply>('metrics', { id, names: listText(names) }),
  });
  const inputs = [source, listText([...ids, ...names])];
  const { value: runs = [], error } = useWork(() => Promise.all(ids.map(read)), inputs);
  return { runs, error: error?.message };
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
    html`<${Select} label="From" value=${against} options=${[['', 'one another'], ['defaults', 'the defaults']]} onChange=${(value: string) => choose({ settings: value })} />`;
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

interface GroupTestProps {
  readonly groups: readonly RunGroupOf[];
  readonly metric: string;
  /** Labels of the two groups, as the address has them. */
  readonly first?: string;
  readonly second?: string;
}

interface Pair {
  readonly seed: number;
  readonly first: number;
  readonly second: number;
}

/** Runs of two groups with the same seed, at the last step that all of them have. */
export function comparison(one: RunGroupOf, other: RunGroupOf, metric: string) {
  const last = lastCommon([...one.members, ...other.members], metric);
  if (!last) return undefined;
  const values = {
    first: last.values.slice(0, one.members.length),
    second: last.values.slice(one.members.length),
  };
  const seedOf = (group: RunGroupOf, i: number) => group.members[i].detail.row.run.seed;
  const bySeed = new Map(values.second.map((value, i) => [seedOf(other, i), value]));
  const pairs: Pair[] = values.first.flatMap((first, i) => {
    const seed = seedOf(one, i);
    const second = bySeed.get(seed);
    bySeed.delete(seed);
    return second === undefined ? [] : [{ seed, first, second }];
  });
  const isPaired = pairs.length > 1;
  const result = isPaired
    ? pairedTest(pairs.map(({ first, second }) => first - second))
    : unpairedTest(values.first, values.second);
  return { step: last.step, pairs: isPaired ? pairs : [], result, ...values };
}

/** Two groups of runs held against one another, by pairs of the same seed where there are some. */
function GroupTest({ groups, metric, first, second }: GroupTestProps) {
  if (groups.length < 2) return null;
  const one = groups.find(({ label }) => label === first) ?? groups[0];
  const other =
    groups.find(group => group.label === second && group !== one) ?? groups.find(group => group !== one)!;
  const options = groups.map(({ label }) => [label, label] as const);
  const format = /success|ratio|share/.test(metric) ? percent : short;
  const found = comparison(one, other, metric);
  return html`<${Panel} title="Do two groups differ?" class="wide">
    <div class="row low controls">
      <${Select} label="First" value=${one.label} options=${options} onChange=${(label: string) => choose({ first: label })} />
      <${Select} label="Second" value=${other.label} options=${options.filter(([label]) => label !== one.label)} onChange=${(label: string) => choose({ second: label })} />
    </div>
    ${
      found
        ? html`<p><code>${metric}</code> at step ${found.step}, the last that all have: ${mean(found.first, format)} and ${mean(found.second, format)}.</p>
          <${Verdict} result=${found.result} pairs=${found.pairs.length} format=${format} />
          ${
            found.pairs.length > 0 &&
            html`<div class="scroll-x" tabindex="0" role="region" aria-label="Pairs"><table>
            <thead><tr><th scope="col" class="number">Seed</th><th scope="col" class="number">${one.label}</th><th scope="col" class="number">${other.label}</th><th scope="col" class="number">Difference</th></tr></thead>
            <tbody>${found.pairs.map(({ seed, first, second }) => html`<tr key=${seed}><td class="number">${seed}</td><td class="number">${format(first)}</td><td class="number">${format(second)}</td><td class="number">${signed(first - second, format)}</td></tr>`)}</tbody>
          </table></div>`
          }`
        : html`<p class="hint">There is no step at which all of their runs have <code>${metric}</code>.</p>`
    }
  <//>`;
}

/** A difference with its sign; of shares in percentage points. */
function signed(value: number, format: (value: number) => string): string {
  const size = Math.abs(value);
  const text = format === percent ? withUnit((100 * size).toFixed(1), 'points') : format(size);
  return `${value > 0 ? '+' : value < 0 ? '−' : ''}${text}`;
}

function mean(values: readonly number[], format: (value: number) => string): string {
  const average = values.reduce((sum, value) => sum + value, 0) / values.length;
  return values.length === 1
    ? format(average)
    : `${format(average)} on average of ${counted(values.length, 'run')}`;
}

interface VerdictProps {
  readonly result: TestResult | undefined;
  readonly pairs: number;
  readonly format: (value: number) => string;
}

function Verdict({ result, pairs, format }: VerdictProps) {
  if (!result) return html`<p class="hint">An exact test takes at most ${MAX_TESTED} runs or pairs.</p>`;
  const { difference, p, least } = result;
  const how =
    pairs > 0
      ? `exact sign-flip test of ${pairs} pairs of one seed`
      : 'exact permutation test; the groups have no two seeds in common';
  const few = least > 0.05 ? ` So few runs cannot give a p below ${short(least)}: train more seeds.` : '';
  return html`<p class="row"><b class="figure">${signed(difference, format)}</b> <b class="figure">p = ${short(p)}</b> <span class="fine">${p <= 0.05 ? 'beyond chance' : 'within chance'}; ${how}.${few}</span></p>`;
}

const MAX_LISTED = 20;

interface PickerProps {
  readonly chosen: readonly string[];
  readonly onChange: (ids: readonly string[]) => void;
}

/** A list of runs to choose from, searched like the table of runs. */
function RunPicker({ chosen, onChange }: PickerProps) {
  const [q, setQ] = useState('');
  const { value, error } = useData<RunsReply>('runs', { limit: MAX_LISTED, q: q || undefined });
  const flip = (id: string) =>
    onChange(chosen.includes(id) ? chosen.filter(one => one !== id) : [...chosen, id]);
  const left = (value?.matching ?? 0) - (value?.rows.length ?? 0);
  return html`<div class="stack picker">
    <label class="field"><span>Find runs</span><input type="search" value=${q} placeholder="Name, or a setting: group_size>1"
      onInput=${(event: Event) => setQ((event.currentTarget as HTMLInputElement).value)} /></label>
    <${Status} error=${error} />
    <ul class="stack tight">${value?.rows.map(row => {
      const last = row.validations.at(-1);
      return html`<li key=${row.id}><label class="check"><input type="checkbox" checked=${chosen.includes(row.id)} onChange=${() => flip(row.id)} />
        <span class="cut">${row.id}</span> <${StateChip} row=${row} /> ${last && html`<b>${percent(last.success)}</b>`}</label></li>`;
    })}</ul>
    ${value?.matching === 0 && html`<p class="hint">No run matches.</p>`}
    ${left > 0 && html`<p class="fine">and ${counted(left, 'more run')}: search to find them</p>`}
  </div>`;
}
