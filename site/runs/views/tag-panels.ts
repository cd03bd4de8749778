import { endText } from '../../components/ends.ts';
import { html } from '../../components/html.ts';
import { formatAddress } from '../address.ts';
import { Chart } from '../charts/chart.ts';
import { CURVES, SMALL_HEIGHT } from '../charts/chart-options.ts';
import { type ChartView, positionsOn } from '../charts/chart-view.ts';
import type { Points, RunStore } from '../data/run-store.ts';
import { percent, short } from '../format.ts';

/** Training metrics of a tag, by the last part of their names. */
type Part = 'ended_by' | 'rewards';
const PARTS: readonly Part[] = ['ended_by', 'rewards'];

/** Metrics of the panels. */
export function tagPanelMetrics(store: RunStore): string[] {
  const { row, metrics } = store.detail!;
  const prefixes = row.run.tags.flatMap(({ tag }) => PARTS.map(part => prefixOf(tag, part)));
  return metrics.filter(name => prefixes.some(prefix => name.startsWith(prefix)));
}

const prefixOf = (tag: string, part: Part): string => `train/${tag}/${part}/`;

interface PanelsProps {
  readonly store: RunStore;
  readonly view: ChartView;
}

/** Ends of the training episodes of each environment, and their reward components. */
export function TagPanels({ store, view }: PanelsProps) {
  const panels = PARTS.flatMap(part =>
    store.detail!.row.run.tags.flatMap(({ tag }) => {
      const table = tableOf(store, tag, part);
      return table.rows.length === 0
        ? []
        : [
            html`<${TagPanel} key=${prefixOf(tag, part)} store=${store} view=${view} tag=${tag} part=${part} ...${table} />`,
          ];
    }),
  );
  return panels.length === 0 ? null : html`<div class="wide tiles" style="--tile: 20rem">${panels}</div>`;
}

interface Table {
  readonly rows: readonly Row[];
  /** First and last step with a value. */
  readonly first: number;
  readonly last: number;
}

interface Row {
  readonly name: string;
  readonly points: Points;
  readonly color: number;
  /** Values at the first and the last step. */
  readonly before: number;
  readonly now: number;
}

/** Metrics with a nonzero value at some step, the greatest first. */
function tableOf(store: RunStore, tag: string, part: Part): Table {
  const prefix = prefixOf(tag, part);
  const all = store.detail!.metrics.flatMap(metric => {
    const points = metric.startsWith(prefix) ? store.series(metric) : undefined;
    return points?.y.some(value => value !== 0) ? [{ name: metric.slice(prefix.length), points }] : [];
  });
  const first = Math.min(...all.map(({ points }) => points.x[0]));
  const last = Math.max(...all.map(({ points }) => points.x.at(-1)!));
  const at = ({ x, y }: Points, index: number, step: number) => (x.at(index) === step ? y.at(index)! : 0);
  const rows = all.map(({ name, points }, color) => {
    return { name, points, color, before: at(points, 0, first), now: at(points, -1, last) };
  });
  return { rows: rows.sort((a, b) => b.now - a.now), first, last };
}

interface TagPanelProps extends PanelsProps, Table {
  readonly tag: string;
  readonly part: Part;
}

function TagPanel({ store, view, tag, part, rows, first, last }: TagPanelProps) {
  const { row, ends, config } = store.detail!;
  const several = row.run.tags.length > 1 ? ` (${tag})` : '';
  const isEnd = part === 'ended_by';
  const title = isEnd
    ? `How training episodes end${several}`
    : `Reward components, mean of an episode${several}`;
  const format = isEnd ? percent : short;
  const labelOf = (name: string) => (isEnd ? endText(name, ends?.[tag]) : name);
  const weights = isEnd ? undefined : weightsIn(config);
  const at = positionsOn(view.axis, store);
  const curves = rows.map(({ name, points, color }) => ({ label: labelOf(name), color, ...points, at }));
  return html`<section class="panel tiles" style="--tile: 20rem" aria-label=${title}>
    <${Chart} title=${title} height=${SMALL_HEIGHT} format=${format} range=${isEnd ? [0, 1] : undefined} view=${view} curves=${curves} />
    <div><table>
      <thead><tr><th scope="col">${isEnd ? 'End' : 'Component'}</th>${weights && html`<th scope="col" class="number">Weight</th>`}
        <th scope="col" class="number">Step ${first}</th><th scope="col" class="number">Step ${last}</th></tr></thead>
      <tbody>${rows.map(
        ({
          name,
          color,
          before,
          now,
        }) => html`<tr key=${name}><th scope="row"><span class="swatch" style=${{ background: `var(--curve-${(color % CURVES) + 1})` }}></span>${isEnd ? html`<${EndLink} store=${store} tag=${tag} name=${name} text=${labelOf(name)} />` : html`<code>${name}</code>`}</th>
          ${weights && html`<td class="number">${Object.hasOwn(weights, name) ? short(weights[name]) : '0'}</td>`}
          <td class="number">${format(before)}</td><td class="number">${format(now)}</td>
        </tr>`,
      )}</tbody>
    </table>
    ${!isEnd && !weights && html`<p class="fine">Without <code>algorithm.reward_components</code> training uses the reward of the environment.</p>`}</div>
  </section>`;
}

interface EndLinkProps {
  readonly store: RunStore;
  readonly tag: string;
  readonly name: string;
  readonly text: string;
}

/** The words of an end, as a link to the latest stored training episodes that ended so. */
function EndLink({ store, tag, name, text }: EndLinkProps) {
  const kept = store.detail!.files.filter(({ kind }) => kind === 'train').sort((a, b) => b.step - a.step);
  if (kept.length === 0) return text;
  const query = { file: kept[0].name, env: tag, end: name };
  return html`<a href=${formatAddress({ view: 'episodes', run: store.id, query })}>${text}</a>`;
}

/** Weights of reward components in the settings of a run; undefined where there are none. */
export function weightsIn(config: unknown): Readonly<Record<string, number>> | undefined {
  const { algorithm } = (config ?? {}) as { readonly algorithm?: { readonly reward_components?: unknown } };
  const weights = algorithm?.reward_components;
  return typeof weights === 'object' && weights !== null
    ? (weights as Readonly<Record<string, number>>)
    : undefined;
}
