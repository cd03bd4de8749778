import { useEffect, useState } from 'preact/hooks';
import { type ControlAction, SCHEDULE_KEYS, type Schedule } from '../../../shared/run-folder/requests.ts';
import type { RunDescription } from '../../../shared/run-folder/run-files.ts';
import { shellWord } from '../../../shared/text.ts';
import { Command } from '../../components/buttons.ts';
import { html } from '../../components/html.ts';
import { isLocked } from '../../components/request.ts';
import { withUnit } from '../../components/text.ts';
import type { RunDetail } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { formatAddress } from '../address.ts';
import { Chart, ChartTools } from '../charts/chart.ts';
import { SMALL_HEIGHT } from '../charts/chart-options.ts';
import type { ChartProps, Curve } from '../charts/chart-view.ts';
import { AXES, type ChartView, chartViewOf, knownAxes, positionsOn } from '../charts/chart-view.ts';
import { SuccessBar } from '../charts/plane.ts';
import { useMetrics, useSource } from '../data/hooks.ts';
import type { RunStore } from '../data/run-store.ts';
import { percent, short } from '../format.ts';
import { HEALTH_METRICS, healthCards } from '../health.ts';
import type { RunViewProps } from './parts.ts';
import { Panel, progressOf, Status, TokenForm } from './parts.ts';
import { Rollouts } from './rollouts.ts';
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

/** Default address of `init`. */
const DEFAULT_SERVER = 'http://127.0.0.1:8080';
const COMPLETION = `curl -s http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' -d '{"prompt":"Which way?","max_tokens":16}'`;

/** Next steps after a finished run: commands to paste, and links. */
function NextSteps({ detail }: { readonly detail: RunDetail }) {
  const { row, folder } = detail;
  const { server, trainer, exported } = useSource().site;
  if (row.state !== 'finished' || exported) return null;
  const { tags } = row.run;
  const url = server === null ? undefined : new URL(server, location.href).href.replace(/\/$/, '');
  const players = ['checkpoint', ...(tags.every(({ random }) => random !== null) ? ['random'] : [])];
  if (tags.every(({ optimum }) => optimum !== null)) players.push('optimal');
  const evaluate = [
    `${trainer} evaluate ${folder}`,
    ...players.map(player => `--policy ${player}`),
    ...(url === undefined || knows(detail, url) ? [] : [shellWord(`servers=[${url}]`)]),
  ].join(' ');
  const init = `${trainer} init me/GuessTen-v0${url === undefined || url === DEFAULT_SERVER ? '' : ` --servers ${shellWord(url)}`}`;
  return html`<${Panel} title="What to do next">
    <div class="stack">
      <section>
        <p><b>Evaluate it</b>${url === undefined && ' with an environment server running'}: a row of the <a href=${formatAddress({ view: 'leaderboard' })}>leaderboard</a></p>
        <${Command} text=${evaluate} />
      </section>
      <section>
        <p><b>Serve it</b> to any OpenAI client</p>
        <${Command} text=${`${trainer} serve ${folder}`} />
      </section>
      <p><a href=${formatAddress({ view: 'replay', run: row.id })}>See one level at every validation</a>${
        server !== null &&
        html`, or play ${[...new Set(tags.map(tag => tag.env_id))].map(
          (id, i) =>
            html`${i > 0 && ', '}<a key=${id} href=${`${server}#/play/${encodeURIComponent(id)}`}>${id}</a>`,
        )} yourself`
      }</p>
      <details>
        <summary>Ask it in another terminal</summary>
        <${Command} text=${COMPLETION} />
      </details>
      <details>
        <summary>Train on an environment of your own</summary>
        <p><code>docs/tutorial/learning-curve.md</code> shows one of 20 lines in Python, as a script and in TypeScript${server !== null && html`; you can <a href=${`${server}#/register`}>register</a> one here, too`}. Then let the trainer choose the settings.</p>
        <${Command} text=${init} />
        <${Command} text=${`${trainer} train GuessTen-v0.yaml`} />
      </details>
    </div>
  <//>`;
}

/** @returns true where the settings of the run name this server */
function knows({ config }: RunDetail, url: string): boolean {
  const { servers } = (config ?? {}) as { readonly servers?: readonly { readonly url?: unknown }[] };
  return Array.isArray(servers) && servers.some(server => server?.url === url);
}

/** Milliseconds in which a second click stops the run. */
const CONFIRM_MS = 5000;
const LABELS: { readonly [key in (typeof SCHEDULE_KEYS)[number]]: string } = {
  validate_every: 'Validate every … steps',
  checkpoint_every: 'Checkpoint every … steps',
  stop_after: 'End after step',
};

interface ControlState {
  readonly text?: string;
  readonly error?: string;
  /** True if the server wants a token. */
  readonly isLocked?: boolean;
  readonly isBusy?: boolean;
}

/** Controls of a running trainer: stop, checkpoint, and when it validates, saves and ends. */
function RunControls({ row }: { readonly row: RunRow }) {
  const source = useSource();
  const [state, setState] = useState<ControlState>({});
  const [isArmed, setArmed] = useState(false);
  useEffect(() => {
    if (!isArmed) return;
    const timer = setTimeout(() => setArmed(false), CONFIRM_MS);
    return () => clearTimeout(timer);
  }, [isArmed]);
  if (!source.site.control || row.state !== 'running' || row.started === null) return null;
  const session = new Date(row.started).toISOString();
  const send = async (action: ControlAction, schedule?: Schedule) => {
    setArmed(false);
    setState({ isBusy: true });
    try {
      const id = crypto.randomUUID();
      await source.send('control', row.id, { id, session, action, ...(schedule ? { schedule } : {}) });
      setState({ text: 'Sent. The notes of the trainer say when it is done.' });
    } catch (error) {
      setState({ error: (error as Error).message, isLocked: isLocked(error) });
    }
  };
  const apply = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const changes = SCHEDULE_KEYS.filter(key => data.get(key) !== '').map(key => [
      key,
      Number(data.get(key)),
    ]);
    if (changes.length === 0) return setState({ error: 'Write a number into one of the fields first.' });
    void send('schedule', Object.fromEntries(changes) as Schedule);
  };
  return html`<${Panel} title="Control the trainer">
    <div class="row low controls">
      <button type="button" disabled=${state.isBusy} onClick=${() => send('checkpoint')}>Save a checkpoint</button>
      <button type="button" disabled=${state.isBusy} onClick=${() => (isArmed ? send('stop') : setArmed(true))}>${isArmed ? 'Press again to stop' : 'Stop'}</button>
    </div>
    <form class="row low controls" onSubmit=${apply}>
      ${SCHEDULE_KEYS.map(key => html`<label key=${key} class="field"><span>${LABELS[key]}</span><input type="number" name=${key} min="1" step="1" /></label>`)}
      <button type="submit" disabled=${state.isBusy}>Apply</button>
    </form>
    ${state.error !== undefined && html`<p class="fine outcome field-error" role="alert">${state.error}</p>`}
    ${state.isLocked && html`<${TokenForm} onToken=${() => setState({ text: 'Press the button again.' })} />`}
    <p class="fine" role="status">${state.text ?? 'Stop is Ctrl-C: it ends with a checkpoint. Changes hold until the run ends.'}</p>
  <//>`;
}

const CHART_HEIGHT = 300;

function headlineMetrics(store: RunStore): string[] {
  const perTag = store.detail!.row.run.tags.flatMap(({ tag }) =>
    ['success', 'success_low', 'success_high'].map(name => `val-env/${tag}/${name}`),
  );
  return [...perTag, ...Object.values(AXES).filter(metric => metric !== undefined)];
}

/** Success of a run in figures, against random play and the optimum, and its curve. */
function Headline({ store, view }: { readonly store: RunStore; readonly view: ChartView }) {
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
