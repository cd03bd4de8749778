import { useRef } from 'preact/hooks';
import { isAlike } from '../../../shared/run-folder/episode-filter.ts';
import type { GroupsRow } from '../../../shared/run-folder/run-files.ts';
import { counted } from '../../../shared/text.ts';
import { html } from '../../components/html.ts';
import { type Outcome, useWork } from '../../components/store.ts';
import { Chart } from '../charts/chart.ts';
import type { Curve } from '../charts/chart-view.ts';
import { Plane } from '../charts/plane.ts';
import { useMetrics, useSource } from '../data/hooks.ts';
import type { RunStore } from '../data/run-store.ts';
import { percent, short } from '../format.ts';
import type { RunViewProps } from './parts.ts';
import { choose, Panel, Status } from './parts.ts';

/** Series measured on a part of the responses. */
interface Measured {
  readonly firstTurn: string;
  readonly trajectory: string;
}

const THOUGHTS: Measured = {
  firstTurn: 'collapse_first_turn_sample',
  trajectory: 'collapse_trajectory_sample',
};
/** Measurements of policies without reasoning. */
const ACTIONS: Measured = {
  firstTurn: 'collapse_action_first_turn_sample',
  trajectory: 'collapse_action_trajectory_sample',
};
const COMPONENTS = ['task', 'entropy', 'kl'] as const;
/** Collapse metrics that have a chart: a run with all of them has hundreds. */
const COLLAPSE =
  /^collapse(\/regime|(_action)?_(first_turn|trajectory)_sample\/(mi_seq_share|conditional_entropy_est))$/;
const GRADIENTS =
  /^grad_norm(_prefilter)?\/[^/]+\/(reward_std_mean|task|entropy|kl|share\/task|cosine\/task|task_to_reg)$/;
const GROUPS = ['rollout/filter_kept_ratio', 'frac_reward_zero_std'];

/** Groups that the rollout filter kept, dependence of the reasoning on the prompt, and gradients by bucket. */
export function FilterView({ store, address }: RunViewProps) {
  const { value: rows, error } = useGroups(store);
  const unread = useMetrics(store, GROUPS);
  // The panels below request these, too; each has its own request, so that an error stays in its panel.
  const others = [store.names(COLLAPSE), store.names(GRADIENTS)];
  useMetrics(store, others[0]);
  useMetrics(store, others[1]);
  if ((!rows && !error) || !store.knows([...GROUPS, ...others.flat()]))
    return html`<div class="tiles" style="--tile: 30rem" aria-busy="true"></div>`;
  return html`<div class="tiles" style="--tile: 30rem">
    <${Panel} title="Groups and the rollout filter" class="wide">
      <${Status} error=${error?.message ?? unread} loading=${!rows && !error} />
      ${rows?.length === 0 && html`<p class="hint">No groups were recorded: the run is from an earlier version, or before its first step.</p>`}
      <div class="tiles">
      ${rows && rows.length > 0 && html`<div class="stack"><${Groups} rows=${rows} step=${Number(address.query.step ?? rows.at(-1)!.step)} /></div>`}
      ${
        rows?.some(({ groups }) => groups.some(({ size }) => size > 1)) &&
        html`<${Chart} title="Groups that were kept, and groups with equal returns" range=${[0, 1]} format=${percent} legend=${true} curves=${[
          { label: 'kept', ...store.series('rollout/filter_kept_ratio') },
          { label: 'all alike', ...store.series('frac_reward_zero_std'), color: 3 },
        ]} />`
      }
      </div>
    <//>
    <${Collapse} store=${store} />
    <${Gradients} store=${store} />
  </div>`;
}

function Groups({ rows, step }: { readonly rows: readonly GroupsRow[]; readonly step: number }) {
  const at = Math.max(
    0,
    rows.findLastIndex(row => row.step <= step),
  );
  const row = rows[at];
  if (row.groups.every(({ size }) => size === 1)) {
    return html`<p>Every group is one episode, so that there is no spread to filter by: the critic says which action was better than expected. Groups of several are made by <code>rollout.group_size</code>.</p>`;
  }
  const alike = row.groups.filter(({ std }) => isAlike(std)).length;
  return html`<label class="field"><span>Step ${row.step}</span>
      <input type="range" min="0" max=${rows.length - 1} value=${at} onInput=${(event: Event) => choose({ step: String(rows[Number((event.currentTarget as HTMLInputElement).value)].step) })} /></label>
    <${Histogram} title=${`Score of the filter (${row.score}, ${row.strategy}), groups of step ${row.step}`} items=${row.groups.map(({ score, kept }) => ({ value: score, kept }))} />
    <p>${counted(row.groups.length, 'group')}: ${row.groups.filter(({ kept }) => kept).length} kept, ${alike} with returns that are all alike (they teach nothing).</p>`;
}

function Collapse({ store }: { readonly store: RunStore }) {
  const error = useMetrics(store, store.names(COLLAPSE));
  const entropy = store.series(`${THOUGHTS.firstTurn}/conditional_entropy_est`);
  const share = store.series(`${THOUGHTS.firstTurn}/mi_seq_share`);
  const shareAt = new Map(share.x.map((step, i) => [step, share.y[i]]));
  const places = entropy.x.flatMap((step, i) => {
    const of = shareAt.get(step);
    return of === undefined || Number.isNaN(of) || Number.isNaN(entropy.y[i])
      ? []
      : [{ step, entropy: entropy.y[i], share: of }];
  });
  if (error)
    return html`<${Panel} title="Collapse of the reasoning" class="wide"><${Status} error=${error} /><//>`;
  if (places.length === 0) {
    if (store.series(`${ACTIONS.firstTurn}/mi_seq_share`).x.length > 0)
      return html`<${Actions} store=${store} />`;
    return html`<${Panel} title="Collapse of the reasoning" class="wide"><p class="hint">Not measured: it takes <code>diagnostics.collapse.every</code> above 0 and a few responses that are not empty.</p><//>`;
  }
  return html`<${Panel} title="Collapse of the reasoning" class="wide">
    <div class="tiles" style="--tile: 20rem">
      <${Plane} places=${places} regime=${store.last('collapse/regime')} />
      <div><${Dependence} store=${store} what="thought" of=${THOUGHTS} height=${160} /></div>
    </div>
  <//>`;
}

/** Dependence of the actions on the observations, for policies without reasoning. */
function Actions({ store }: { readonly store: RunStore }) {
  const share = store.last(`${ACTIONS.firstTurn}/mi_seq_share`)!;
  return html`<${Panel} title="Do the actions depend on what the policy sees?" class="wide">
    <p>The policy does not think (<code>rollout.think</code>), so its first actions are measured in place of thoughts: they
      hold ${percent(share)} of the information in the prompt. Near ${percent(0)} it does the same for every prompt.</p>
    <div class="tiles" style="--tile: 20rem"><${Dependence} store=${store} what="action" of=${ACTIONS} height=${200} /></div>
  <//>`;
}

interface DependenceProps {
  readonly store: RunStore;
  readonly what: string;
  readonly of: Measured;
  readonly height: number;
}

function Dependence({ store, what, of, height }: DependenceProps) {
  const curves = (name: string): Curve[] => [
    { label: 'first turns', ...store.series(`${of.firstTurn}/${name}`) },
    { label: 'any turn', ...store.series(`${of.trajectory}/${name}`) },
  ];
  return html`<${Chart} title=${`Mutual information of ${what} and prompt, share of the most it can be`} range=${[0, 1]} format=${percent} legend=${true} height=${height} curves=${curves('mi_seq_share')} />
    <${Chart} title=${`Entropy of the ${what} given its prompt, nats per token`} legend=${true} height=${height} curves=${curves('conditional_entropy_est')} />`;
}

/** Gradient norms, shares and cosines by bucket of reward variance, as last measured. */
function Gradients({ store }: { readonly store: RunStore }) {
  const names = store.names(GRADIENTS);
  const error = useMetrics(store, names);
  const prefix = names.some(name => name.startsWith('grad_norm/')) ? 'grad_norm' : 'grad_norm_prefilter';
  const buckets = [
    ...new Set(names.filter(name => name.startsWith(`${prefix}/`)).map(name => name.split('/')[1])),
  ].sort();
  if (buckets.length === 0) {
    return html`<${Panel} title="Where the gradient comes from"><p class="hint">Not measured: set <code>diagnostics.gradients.every</code> to measure it every so many steps.</p><//>`;
  }
  if (error)
    return html`<${Panel} title="Where the gradient comes from" class="wide"><${Status} error=${error} /><//>`;
  const of = (bucket: string, name: string) => store.last(`${prefix}/${bucket}/${name}`);
  const cell = (value: number | undefined, format: (value: number) => string = short) =>
    html`<td class="number">${value === undefined ? '–' : format(value)}</td>`;
  return html`<${Panel} title="Where the gradient comes from" class="wide">
    <div class="scroll-x" tabindex="0" role="region" aria-label="Gradients by bucket"><table>
      <caption class="fine">Buckets of groups by reward variance, least first; at step ${store.series(`${prefix}/${buckets[0]}/task`).x.at(-1)}</caption>
      <thead><tr><th scope="col">Bucket</th><th scope="col" class="number">Spread</th>
        ${COMPONENTS.map(name => html`<th scope="col" class="number" key=${name}>‖${name}‖</th>`)}
        <th scope="col" class="number">Share of the task gradient</th><th scope="col" class="number">Cosine with all</th><th scope="col" class="number">Task to regularizer</th></tr></thead>
      <tbody>${buckets.map(
        bucket => html`<tr key=${bucket}><th scope="row">${bucket}</th>
          ${cell(of(bucket, 'reward_std_mean'))}
          ${COMPONENTS.map(name => cell(of(bucket, name)))}
          ${cell(of(bucket, 'share/task'), percent)} ${cell(of(bucket, 'cosine/task'))} ${cell(of(bucket, 'task_to_reg'))}
        </tr>`,
      )}</tbody></table></div>
    <${Chart} title="Norm of the task gradient by bucket" legend=${true} curves=${buckets.map(bucket => ({ label: bucket, ...store.series(`${prefix}/${bucket}/task`) }))} />
  <//>`;
}

const BINS = 16;
const WIDTH = 640;
const HEIGHT = 156;

interface Item {
  readonly value: number;
  readonly kept: boolean;
}

/** Distribution of the groups' scores, with kept groups separate, and the filter's threshold. */
function Histogram({ title, items }: { readonly title: string; readonly items: readonly Item[] }) {
  if (items.length === 0) return html`<p class="hint">No groups yet.</p>`;
  const values = items.map(({ value }) => value);
  const low = Math.min(0, ...values);
  const greatest = Math.max(...values);
  const high = greatest > low ? greatest : low + 1;
  const bins = Array.from({ length: BINS }, () => ({ kept: 0, dropped: 0 }));
  for (const { value, kept } of items) {
    const bin = Math.min(BINS - 1, Math.floor(((value - low) / (high - low)) * BINS));
    bins[bin][kept ? 'kept' : 'dropped']++;
  }
  const most = Math.max(...bins.map(({ kept, dropped }) => kept + dropped));
  const width = WIDTH / BINS;
  const scale = (count: number) => (count / most) * (HEIGHT - 8);
  const cut = cutOf(items);
  const at = (value: number) => ((value - low) / (high - low)) * WIDTH;
  const kept = items.filter(item => item.kept).length;
  const words = `${title}: ${counted(items.length, 'group')} from ${short(Math.min(...values))} to ${short(greatest)}, ${kept} kept${cut === undefined ? '' : `, cut at ${short(cut)}`}`;
  return html`<figure class="stack chart">
    <figcaption>${title}</figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${words}>
      ${bins.map(({ kept, dropped }, i) => {
        return html`<g key=${i}>
          <rect fill="var(--curve-1)" x=${i * width + 1} width=${width - 2} y=${HEIGHT - scale(kept)} height=${scale(kept)} />
          <rect fill="var(--curve-2)" x=${i * width + 1} width=${width - 2} y=${HEIGHT - scale(kept + dropped)} height=${scale(dropped)} />
        </g>`;
      })}
      <line stroke="var(--edge)" x1="0" x2=${WIDTH} y1=${HEIGHT} y2=${HEIGHT} />
      ${cut !== undefined && html`<line stroke="var(--edge)" stroke-width="1.5" stroke-dasharray="5 4" x1=${at(cut)} x2=${at(cut)} y1="0" y2=${HEIGHT} />`}
    </svg>
    <p class="row apart fine" style="max-width: 44rem"><span>${short(low)}</span><span>${short(high)}</span></p>
    <p class="fine"><span class="swatch" style=${{ background: 'var(--curve-1)' }}></span> kept · <span class="swatch" style=${{ background: 'var(--curve-2)' }}></span> dropped${cut === undefined ? '' : ` · the cut is at ${short(cut)}`}</p>
  </figure>`;
}

/** Midpoint between the greatest dropped score and the least kept one; undefined where the filter did not cut there. */
function cutOf(items: readonly Item[]): number | undefined {
  const kept = items.filter(item => item.kept).map(({ value }) => value);
  const dropped = items.filter(item => !item.kept).map(({ value }) => value);
  if (kept.length === 0 || dropped.length === 0) return undefined;
  const least = Math.min(...kept);
  const greatest = Math.max(...dropped);
  if (greatest <= least) return (greatest + least) / 2;
  const most = Math.max(...kept);
  const lowest = Math.min(...dropped);
  return most <= lowest ? (most + lowest) / 2 : undefined;
}

/** Iterations that stay in memory, at least as many as the server sends at once; a page may be open for days. */
const MAX_ROWS = 512;

type Rows = readonly GroupsRow[];

/** The groups of a run's iterations. A new step requests only its groups. */
function useGroups(store: RunStore): Outcome<Rows> {
  const source = useSource();
  const kept = useRef<{ readonly of: string; readonly rows: Rows }>({ of: '', rows: [] });
  const of = `${store.id} ${store.replaced}`;
  const read = async () => {
    const known = kept.current.of === of ? kept.current.rows : [];
    const news = await source.get<Rows>('groups', { id: store.id, after: known.at(-1)?.step });
    const rows = thinned([...known, ...news]);
    kept.current = { of, rows };
    return rows;
  };
  return useWork(read, [source, of, store.detail?.row.step]);
}

/** Drops every second row of too many; the last one stays. */
function thinned(rows: Rows): Rows {
  if (rows.length <= MAX_ROWS) return rows;
  return rows.filter((_, i) => (rows.length - 1 - i) % 2 === 0);
}
