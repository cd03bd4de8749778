import type { RunDescription } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { withUnit } from '../../components/with-unit.ts';
import { Chart } from '../charts/chart.ts';
import type { Curve } from '../charts/chart-props.ts';
import { AXES, type ChartView, positionsOn } from '../charts/chart-view.ts';
import { SuccessBar } from '../charts/success-bar.ts';
import type { RunStore } from '../data/run-store.ts';
import { percent } from '../format.ts';
import { progressOf } from './parts.ts';

const CHART_HEIGHT = 300;

/** Metrics of the headline. */
export function headlineMetrics(store: RunStore): string[] {
  const perTag = store.detail!.row.run.tags.flatMap(({ tag }) =>
    ['success', 'success_low', 'success_high'].map(name => `val-env/${tag}/${name}`),
  );
  return [...perTag, ...Object.values(AXES).filter(metric => metric !== undefined)];
}

/** Success of a run in figures, against random play and the optimum, and its curve. */
export function Headline({ store, view }: { readonly store: RunStore; readonly view: ChartView }) {
  const { row } = store.detail!;
  const { validations, run } = row;
  const last = validations.at(-1);
  if (!last) {
    return html`<section class="panel">
      <h2>No validation yet</h2><p class="hint">${progressOf(row)}. The first validation measures success before training; set <code>training.validate_every</code> for more of them.</p>
    </section>`;
  }
  const first = validations[0];
  const tag = run.tags.length === 1 ? run.tags[0] : undefined;
  const { random = null, optimum = null } = tag ?? {};
  const isGap = random !== null && optimum !== null && optimum > random;
  const before = first === last ? undefined : first.success;
  const [number] = percent(last.success).split('\u00a0');
  return html`<section class="panel fills">
    <div class="row apart low headline">
      <div class="row apart lead"><h2 class="fine">Success on levels it never trained on</h2><p class="fine progress" role="status">${progressOf(row)}</p></div>
      <p class="headline-number">${number}<small>\u00a0%</small></p>
      <dl class="figures">
        ${last.low !== undefined && last.high !== undefined && html`<${Figure} name=${`${withUnit(95, '%')} interval`} value=${`${percent(last.low).split('\u00a0')[0]} to ${percent(last.high)}`} />`}
        ${before !== undefined && html`<${Figure} name="before training" value=${percent(before)} />`}
        ${isGap && html`<${Figure} name="of the way from random to optimum" value=${percent((last.success - random) / (optimum - random))} />`}
      </dl>
    </div>
    ${
      run.tags.length > 1
        ? html`<ul class="stack tag-bars">${run.tags.map(one => html`<${TagBar} key=${one.tag} store=${store} tag=${one} />`)}</ul>`
        : html`<${SuccessBar} last=${last} before=${before} random=${random} optimum=${optimum} labelled=${true} />`
    }
    <${Chart} title=${`Success with its ${percent(0.95)} interval, by validation`} height=${CHART_HEIGHT} range=${[0, 1]} format=${percent} legend=${run.tags.length > 1} fill=${run.tags.length === 1}
      view=${view} exact=${true} curves=${validationCurves(store, view)} references=${referencesOf(random, optimum)} />
  </section>`;
}

function Figure({ name, value }: { readonly name: string; readonly value: string }) {
  return html`<div><dt>${name}</dt><dd class="figure">${value}</dd></div>`;
}

interface TagBarProps {
  readonly store: RunStore;
  readonly tag: RunDescription['tags'][0];
}

/** One of several environments of a run. */
function TagBar({ store, tag: { tag, random, optimum } }: TagBarProps) {
  const of = (name: string) => store.last(`val-env/${tag}/${name}`);
  const success = of('success');
  if (success === undefined) return null;
  const last = { success, low: of('success_low'), high: of('success_high') };
  return html`<li class="stack"><span>${tag}</span><b class="number">${percent(success)}</b>
    <${SuccessBar} last=${last} random=${random} optimum=${optimum} labelled=${true} /></li>`;
}

function referencesOf(random: number | null, optimum: number | null) {
  const all = [
    { label: 'random', value: random },
    { label: 'optimum', value: optimum },
  ];
  return all.flatMap(({ label, value }) => (value === null ? [] : [{ label, value }]));
}

function validationCurves(store: RunStore, view: ChartView): Curve[] {
  const at = positionsOn(view.axis, store);
  return store.detail!.row.run.tags.map(({ tag }, color) => {
    const { x, y } = store.series(`val-env/${tag}/success`);
    const low = store.series(`val-env/${tag}/success_low`).y;
    const high = store.series(`val-env/${tag}/success_high`).y;
    const banded = low.length === y.length && high.length === y.length && y.length > 0;
    return { label: tag, x, y, at, color, ...(banded ? { low, high } : {}) };
  });
}
