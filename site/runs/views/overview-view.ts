import { html } from '../../components/html.ts';
import { Chart } from '../charts/chart.ts';
import { SMALL_HEIGHT } from '../charts/chart-options.ts';
import type { ChartProps } from '../charts/chart-props.ts';
import { ChartTools } from '../charts/chart-tools.ts';
import { type ChartView, chartViewOf, knownAxes, positionsOn } from '../charts/chart-view.ts';
import { useMetrics, useSource } from '../data/hooks.ts';
import type { RunStore } from '../data/run-store.ts';
import { percent, short } from '../format.ts';
import { HEALTH_METRICS, healthCards } from '../health.ts';
import { Headline, headlineMetrics } from './headline.ts';
import { NextSteps } from './next-steps.ts';
import { Panel, Status } from './parts.ts';
import { Rollouts } from './rollouts.ts';
import { RunControls } from './run-controls.ts';
import type { RunViewProps } from './run-view-props.ts';
import { TagPanels, tagPanelMetrics } from './tag-panels.ts';

interface Small {
  readonly title: string;
  readonly name: string;
  readonly format?: (value: number) => string;
  readonly range?: readonly [number, number];
}

/** The small charts, in order. */
const SMALL: readonly Small[] = [
  { title: 'Training return', name: 'train/return' },
  { title: 'Training success', name: 'train/success', format: percent, range: [0, 1] },
  { title: 'Response tokens', name: 'train/response_length' },
  { title: 'Entropy, nats', name: 'actor/entropy' },
  { title: 'KL to the sampler', name: 'actor/ppo_kl' },
  { title: 'KL to the reference', name: 'actor/kl_loss' },
  { title: 'Gradient norm', name: 'actor/grad_norm' },
  { title: 'Explained variance', name: 'critic/vf_explained_var' },
  { title: 'Warm-start loss', name: 'sft/loss' },
  { title: 'Tokens per second', name: 'perf/tokens_per_second' },
  { title: 'Policy busy', name: 'perf/policy_busy_ratio', format: percent, range: [0, 1] },
];

/** Success of a run, its health, next steps, its curves, and its latest episodes. */
export function OverviewView({ store, address }: RunViewProps) {
  const { row, config, folder, metrics } = store.detail!;
  const { group_size: groupSize = 1 } =
    (config as { rollout?: { group_size?: number } } | null)?.rollout ?? {};
  const penalties = row.run.tags.map(({ tag }) => `train/${tag}/format_penalty`);
  const names = [
    ...headlineMetrics(store),
    ...SMALL.map(({ name }) => name),
    ...HEALTH_METRICS,
    ...penalties,
    ...tagPanelMetrics(store),
  ];
  const unread = useMetrics(store, names);
  const { trainer } = useSource().site;
  // Rendered together: parts that come later would move the page.
  if (!store.knows(names)) return html`<div class="tiles overview" aria-busy="true"></div>`;
  const resume = `${trainer} train --resume ${folder}`;
  const cards = healthCards(row, name => store.series(name), groupSize, Date.now(), resume);
  const view = chartViewOf(address.query);
  const shown = SMALL.filter(({ name }) => store.series(name).x.length > 0);
  return html`<div class="tiles overview" style="--tile: 32rem">
    <${Status} error=${unread} />
    <${Headline} store=${store} view=${view} />
    <div class="stack side">
      <${Panel} title="Is training healthy?">
        ${cards.length === 0 && html`<p class="hint">Nothing to say yet: the first step or validation is still in progress.</p>`}
        ${cards.map(
          ({ level, title, text, advice }) => html`<div key=${title} class="note health ${level}">
            <h3>${title}</h3><p>${text}</p>${advice && html`<p class="fine">What to do: ${advice}</p>`}
          </div>`,
        )}
      <//>
      <${RunControls} row=${row} />
      <${NextSteps} detail=${store.detail!} />
    </div>
    ${
      shown.length > 0 &&
      html`<section class="wide stack" aria-label="Curves">
      <div class="panel-head"><h2>Curves</h2><${ChartTools} view=${view} axes=${knownAxes(metrics)} /></div>
      <div class="tiles small-charts">${shown.map(
        ({ title, name, format, range }) => html`<div key=${name} class="panel" title=${name}>
          <${Chart} title=${title} height=${SMALL_HEIGHT} format=${format ?? short} range=${range} ...${curveOf(store, name, view)} />
        </div>`,
      )}</div>
    </section>`
    }
    <${TagPanels} store=${store} view=${view} />
    <${Rollouts} store=${store} query=${address.query} />
    <${Notes} store=${store} />
  </div>`;
}

/** A metric over the axis of the view; a metric of the warm start, which comes before the first step, over its epochs. */
function curveOf(store: RunStore, name: string, view: ChartView): Pick<ChartProps, 'curves' | 'view'> {
  const { x, y } = store.series(name);
  if (name.startsWith('sft/')) return { curves: [{ label: name, x: x.map((_, i) => i + 1), y }] };
  return { view, curves: [{ label: name, x, y, at: positionsOn(view.axis, store) }] };
}

function Notes({ store }: { readonly store: RunStore }) {
  const { notes } = store.detail!;
  if (notes.length === 0) return null;
  return html`<${Panel} title="What the trainer noted" class="wide">
    <ol class="stack tight fine">${notes.map(({ time, text }) => html`<li key=${time + text}><time class="fine">${time.slice(11, 19)}</time> ${text}</li>`)}</ol>
  <//>`;
}
