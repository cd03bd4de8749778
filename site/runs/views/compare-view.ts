import { useEffect, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import type { MetricsReply, RunDetail } from '../../server/reader/run-reader.ts';
import { type Address, formatAddress } from '../address.ts';
import { Chart } from '../charts/chart.ts';
import type { Curve } from '../charts/chart-props.ts';
import { useSource } from '../data/hooks.ts';
import { counted, percent, short } from '../format.ts';
import { choose, PageTitle, Panel, Select, Status } from './parts.ts';
import { settingsOf } from './settings-view.ts';

const MAX_RUNS = 16;
const METRICS = [
  'val-env/success',
  'train/success',
  'train/return',
  'actor/entropy',
  'train/response_length',
  'actor/grad_norm',
];
/** Settings in which runs of one kind differ. */
const SEED_KEYS = /^(seed|run\.|servers|rollout\.start_seed$|policy\.workers$)/;

interface Compared {
  readonly detail: RunDetail;
  readonly metrics: MetricsReply;
}

/** Several runs: their curves, those that differ by their seed alone as one with a band, and a diff of their settings. */
export function CompareView({ address }: { readonly address: Address }) {
  const ids = (address.query.runs ?? '')
    .split(',')
    .filter(id => id !== '')
    .slice(0, MAX_RUNS);
  const together = address.query.seeds !== 'apart';
  const more = address.query.metric ?? '';
  const names = more === '' ? METRICS : [more];
  const { runs, error } = useRuns(ids, names);
  const known = [...new Set(runs.flatMap(({ detail }) => detail.metrics))].sort();
  return html`<div class="page-body">
    <${PageTitle} view="compare" />
    ${ids.length < 2 && html`<div class="panel"><p>Tick two or more runs in the <a href=${formatAddress({ view: 'runs' })}>table of runs</a>.</p></div>`}
    <${Status} error=${error} loading=${ids.length > 0 && runs.length === 0 && !error} />
    ${
      runs.length > 0 &&
      html`<div class="controls">
      <label class="check"><input type="checkbox" checked=${together} onChange=${() => choose({ seeds: together ? 'apart' : '' }, true)} /> one curve for runs that differ by seed alone</label>
      <${Select} label="Metric" value=${more} options=${[['', 'the usual ones'], ...known.map(name => [name, name] as const)]} onChange=${(metric: string) => choose({ metric }, true)} />
    </div>
    <div class="compare-charts">${names
      .filter(name => runs.some(({ metrics }) => metrics.series[name]))
      .map(
        name => html`<div class="panel" key=${name}><${Chart} title=${name} legend=${true} height=${names.length === 1 ? 420 : 240}
        format=${/success/.test(name) ? percent : short} range=${/success/.test(name) ? [0, 1] : undefined} curves=${curvesOf(runs, name, together)} /></div>`,
      )}</div>
    <${Differences} runs=${runs} />`
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
  const key = [...ids, ...names].join(',');
  useEffect(() => {
    let current = true;
    const reading = ids.map(async id => ({
      detail: await source.get<RunDetail>('run', { id }),
      metrics: await source.get<MetricsReply>('metrics', { id, names: names.join(',') }),
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

/** A curve per run, or per kind of run: mean over the seeds with a band of one standard deviation. */
export function curvesOf(runs: readonly Compared[], name: string, together: boolean): Curve[] {
  if (!together)
    return runs.map(({ detail, metrics }) => ({ label: detail.row.id, ...pointsOf(metrics, name) }));
  const kinds = new Map<string, Compared[]>();
  for (const run of runs) {
    const kind = JSON.stringify(settingsOf(run.detail.config).filter(([key]) => !SEED_KEYS.test(key)));
    kinds.set(kind, [...(kinds.get(kind) ?? []), run]);
  }
  return [...kinds.values()].map(members => {
    if (members.length === 1)
      return { label: members[0].detail.row.id, ...pointsOf(members[0].metrics, name) };
    const label = `${members[0].detail.row.run.name.replace(/(?:[-_.]?seed[-_.]?|[-_.]{1,2}|(?<!\d))\d+$/, '')} (${counted(members.length, 'seed')})`;
    return { label, ...meanOf(members.map(({ metrics }) => pointsOf(metrics, name))) };
  });
}

function pointsOf(
  { series }: MetricsReply,
  name: string,
): { readonly x: readonly number[]; readonly y: readonly number[] } {
  const points = series[name] ?? { x: [], y: [] };
  return { x: points.x, y: points.y.map(value => value ?? Number.NaN) };
}

/** Mean over runs at each step that all of them have, and the band of one standard deviation around it. */
export function meanOf(runs: readonly { readonly x: readonly number[]; readonly y: readonly number[] }[]) {
  const values = new Map<number, number[]>();
  for (const { x, y } of runs) {
    x.forEach((step, i) => {
      if (!Number.isNaN(y[i])) values.set(step, [...(values.get(step) ?? []), y[i]]);
    });
  }
  const steps = [...values].filter(([, all]) => all.length === runs.length).sort((a, b) => a[0] - b[0]);
  const mean = steps.map(([, all]) => all.reduce((sum, value) => sum + value, 0) / all.length);
  const std = steps.map(([, all], i) =>
    Math.sqrt(all.reduce((sum, value) => sum + (value - mean[i]) ** 2, 0) / (all.length - 1)),
  );
  return {
    x: steps.map(([step]) => step),
    y: mean,
    low: mean.map((value, i) => value - std[i]),
    high: mean.map((value, i) => value + std[i]),
  };
}

function Differences({ runs }: { readonly runs: readonly Compared[] }) {
  const all = runs.map(({ detail }) => new Map(settingsOf(detail.config)));
  const keys = [...new Set(all.flatMap(settings => [...settings.keys()]))].filter(
    key => new Set(all.map(settings => settings.get(key))).size > 1 && key !== 'run.name',
  );
  return html`<${Panel} title="Settings that differ" class="wide">
    ${
      keys.length === 0
        ? html`<p>All settings are the same.</p>`
        : html`<div class="scroll-x" tabindex="0" role="region" aria-label="Settings that differ"><table>
      <thead><tr><th scope="col">Setting</th>${runs.map(({ detail }) => html`<th scope="col" key=${detail.row.id}>${detail.row.id}</th>`)}</tr></thead>
      <tbody>${keys.map(key => html`<tr key=${key}><th scope="row"><code>${key}</code></th>${all.map((settings, i) => html`<td key=${i}><code>${settings.get(key) ?? '–'}</code></td>`)}</tr>`)}</tbody>
    </table></div>`
    }
  <//>`;
}
