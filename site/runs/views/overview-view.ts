import { useRef } from 'preact/hooks';
import type { TrajectoryRecord } from '../../../shared/run-folder/run-files.ts';
import { Board } from '../../boards/board.ts';
import { html } from '../../components/html.ts';
import type { EpisodeDigest, EpisodeReply, TrajectoryFile } from '../../server/reader/trajectories.ts';
import { formatAddress } from '../address.ts';
import { Chart } from '../charts/chart.ts';
import { SMALL_HEIGHT } from '../charts/chart-options.ts';
import type { ChartProps } from '../charts/chart-props.ts';
import { ChartTools } from '../charts/chart-tools.ts';
import { type ChartView, chartViewOf, knownAxes, positionsOn } from '../charts/chart-view.ts';
import { useData, useMetrics, useSource } from '../data/hooks.ts';
import type { RunStore } from '../data/run-store.ts';
import { counted, percent, short } from '../format.ts';
import { HEALTH_METRICS, healthCards } from '../health.ts';
import { Headline, headlineMetrics } from './headline.ts';
import { NextSteps } from './next-steps.ts';
import { Panel, Status } from './parts.ts';
import type { RunViewProps } from './run-view-props.ts';

interface Small {
  readonly title: string;
  readonly name: string;
  readonly format?: (value: number) => string;
  readonly range?: readonly [number, number];
}

/** The small charts, in their order. */
const SMALL: readonly Small[] = [
  { title: 'Return in training', name: 'train/return' },
  { title: 'Success in training', name: 'train/success', format: percent, range: [0, 1] },
  { title: 'Response length, tokens', name: 'train/response_length' },
  { title: 'Entropy, nats per token', name: 'actor/entropy' },
  { title: 'KL to the sampling policy, nats', name: 'actor/ppo_kl' },
  { title: 'KL to the reference', name: 'actor/kl_loss' },
  { title: 'Gradient norm', name: 'actor/grad_norm' },
  { title: 'Explained variance of the critic', name: 'critic/vf_explained_var' },
  { title: 'Loss of the warm start, by epoch', name: 'sft/loss' },
  { title: 'Tokens per second', name: 'perf/tokens_per_second' },
  { title: 'Busy share of the policy', name: 'perf/policy_busy_ratio', format: percent, range: [0, 1] },
];

/** Success of a run, its health, what to do next, its curves, and a failed episode. */
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
  ];
  const unread = useMetrics(store, names);
  const { trainer } = useSource().site;
  // All at once: what comes later would move what is there.
  if (!store.knows(names)) return html`<div class="overview" aria-busy="true"></div>`;
  const resume = `${trainer} train --resume ${folder}`;
  const cards = healthCards(row, name => store.series(name), groupSize, Date.now(), resume);
  const view = chartViewOf(address.query);
  return html`<div class="overview">
    <${Status} error=${unread} />
    <${Headline} store=${store} view=${view} />
    <div class="side">
      <${Panel} title="Is training healthy?">
        ${cards.length === 0 && html`<p class="hint">Nothing to say yet: the first step or validation is still under way.</p>`}
        ${cards.map(
          ({ level, title, text, advice }) => html`<div key=${title} class="health ${level}">
            <h3>${title}</h3><p>${text}</p>${advice && html`<p class="fine">What to do: ${advice}</p>`}
          </div>`,
        )}
      <//>
      <${NextSteps} detail=${store.detail!} />
    </div>
    <section class="wide curves" aria-label="Curves">
      <div class="panel-head"><h2>Curves</h2><${ChartTools} view=${view} axes=${knownAxes(metrics)} /></div>
      <div class="small-charts">${SMALL.filter(({ name }) => store.series(name).x.length > 0).map(
        ({ title, name, format, range }) => html`<div key=${name} class="panel" title=${name}>
          <${Chart} title=${title} height=${SMALL_HEIGHT} format=${format ?? short} range=${range} ...${curveOf(store, name, view)} />
        </div>`,
      )}</div>
    </section>
    <${FailedEpisode} store=${store} />
    <${Notes} store=${store} />
  </div>`;
}

/** A metric over the axis of the view; one of the warm start, which comes before the first step, over its epochs. */
function curveOf(store: RunStore, name: string, view: ChartView): Pick<ChartProps, 'curves' | 'view'> {
  const { x, y } = store.series(name);
  if (name.startsWith('sft/')) return { curves: [{ label: name, x: x.map((_, i) => i + 1), y }] };
  return { view, curves: [{ label: name, x, y, at: positionsOn(view.axis, store) }] };
}

/** Failures of a validation, with one episode of them. */
interface Failures {
  readonly file: TrajectoryFile;
  readonly episodes: number;
  readonly failed: number;
  /** Absent where none failed. */
  readonly chosen?: EpisodeDigest;
  /** Absent until it is read. */
  readonly record?: TrajectoryRecord;
}

/** The latest validation's failures. Until those of a new one are read, those of the former one stay. */
function useFailures(store: RunStore): Failures | undefined {
  const { files } = store.detail!;
  const latest = files
    .filter(({ kind }) => kind === 'validation')
    .sort((a, b) => a.step - b.step)
    .at(-1);
  const query = { id: store.id, file: latest?.name };
  const list = useData<readonly EpisodeDigest[]>(latest && 'episodes', query);
  const file = files.find(({ name }) => name === list.answered?.file);
  const failed = list.value?.filter(({ success }) => !success) ?? [];
  const chosen = failed.at(0);
  const { value, answered } = useData<EpisodeReply>(chosen && 'episode', {
    id: store.id,
    file: file?.name,
    index: chosen?.index,
  });
  const isRead = answered?.file === file?.name && answered?.index === chosen?.index;
  const kept = useRef<Failures | undefined>(undefined);
  if (file && list.value && (isRead || !chosen || !kept.current?.record)) {
    const record = chosen && isRead ? value?.episode : undefined;
    kept.current = { file, episodes: list.value.length, failed: failed.length, chosen, record };
  }
  return kept.current;
}

/** A failed episode of the latest validation. */
function FailedEpisode({ store }: { readonly store: RunStore }) {
  const failures = useFailures(store);
  if (!failures) return null;
  const { file, episodes, failed, chosen, record } = failures;
  const title = 'What it does wrong now';
  if (!chosen) {
    return html`<${Panel} title=${title}><p>None of the ${episodes} validation episodes kept at step ${file.step} failed.</p><//>`;
  }
  const first = formatAddress({
    view: 'episode',
    run: store.id,
    query: { file: file.name, index: String(chosen.index), turn: '0' },
  });
  const turns = record?.turns ?? [];
  return html`<${Panel} title=${title}>
    <p>${failed} of the ${episodes} validation episodes kept at step ${file.step} failed. In this one (${chosen.env_id}, seed ${chosen.seed}) the return was ${short(chosen.return)} after ${counted(chosen.turns, 'turn')}.</p>
    ${
      record &&
      html`<div class="two-boards">
      <figure><${Board} state=${turns[0]?.structured} text=${turns[0]?.state} /><figcaption>At the start</figcaption></figure>
      <figure><${Board} state=${record.final_structured ?? turns.at(-1)?.structured} text=${record.final_state ?? turns.at(-1)?.state} /><figcaption>At the end</figcaption></figure>
    </div>
    <p class="fine">It answered: ${turns.map(turn => turn.llm_response).join(' · ')}</p>`
    }
    <p><a href=${first}>Look at it turn by turn</a> · <a href=${formatAddress({ view: 'episodes', run: store.id, query: { file: file.name, success: 'no' } })}>all failed ones</a></p>
  <//>`;
}

function Notes({ store }: { readonly store: RunStore }) {
  const { notes } = store.detail!;
  if (notes.length === 0) return null;
  return html`<${Panel} title="What the trainer noted" class="wide">
    <ol class="notes">${notes.map(({ time, text }) => html`<li key=${time + text}><time class="fine">${time.slice(11, 19)}</time> ${text}</li>`)}</ol>
  <//>`;
}
