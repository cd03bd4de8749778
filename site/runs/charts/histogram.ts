import { html } from '../../components/html.ts';
import { counted, short } from '../format.ts';

const BINS = 16;
const WIDTH = 640;
const HEIGHT = 156;

interface Item {
  readonly value: number;
  readonly kept: boolean;
}

/** Distribution of the groups' scores, with kept groups separate, and the filter's threshold. */
export function Histogram({ title, items }: { readonly title: string; readonly items: readonly Item[] }) {
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
