import { filtered } from '../../../shared/run-folder/episode-filter.ts';
import { counted } from '../../../shared/text.ts';
import { episodeEnd, type Meanings, successMark } from '../../components/ends.ts';
import { html } from '../../components/html.ts';
import type { EpisodeDigest } from '../../compute/episode-digest.ts';
import { type Address, formatAddress } from '../address.ts';
import { useData } from '../data/hooks.ts';
import type { RunStore } from '../data/run-store.ts';
import { levelOf, short } from '../format.ts';
import { choose, Status } from './parts.ts';

const MAX_ROWS = 10;

interface RolloutsProps {
  readonly store: RunStore;
  readonly query: Address['query'];
}

/** Returns of the latest episodes as a histogram, with a list of the episodes of the chosen bar, worst first. */
export function Rollouts({ store, query }: RolloutsProps) {
  const latest = store.detail!.files.reduce<{ readonly name: string; readonly step: number } | undefined>(
    (best, file) => (best && best.step >= file.step ? best : file),
    undefined,
  );
  const { value, answered, error } = useData<readonly EpisodeDigest[]>(latest && 'episodes', {
    id: store.id,
    file: latest?.name,
  });
  if (!latest) return null;
  if (!value)
    return html`<section class="wide rollouts pending"><${Status} error=${error} loading=${!error} /></section>`;
  const file = String(answered?.file);
  const [, kind, step] = /^(train|validation)-(\d+)$/.exec(file) ?? [];
  const bins = binsOf(value.flatMap(episode => episode.return ?? []));
  const { min = '', max = '' } = query;
  const chosen = bins.find(({ low, high }) => String(low) === min && String(high) === max);
  const shown = filtered(value, chosen ? { min, max } : {}).sort((a, b) => (a.return ?? 0) - (b.return ?? 0));
  const all = formatAddress({
    view: 'episodes',
    run: store.id,
    query: { file, ...(chosen ? { min, max } : {}) },
  });
  const failed = formatAddress({ view: 'episodes', run: store.id, query: { file, success: 'no' } });
  const failures = value.filter(({ success }) => success === false).length;
  return html`<section class="wide tiles rollouts" style="--tile: 25rem" aria-label="Rollouts">
    <div class="stack">
      <div class="panel-head"><h2>Returns of ${counted(value.length, `${kind === 'train' ? 'training' : 'validation'} episode`)}, step ${Number(step)}</h2></div>
      <${Bars} bins=${bins} chosen=${chosen} />
      <p class="fine">A bar filters the list; a second press shows all.${failures > 0 && html` <a href=${failed}>${failures} failed</a>`}</p>
    </div>
    <div class="stack">
      <div class="panel-head"><h2 aria-live="polite">${counted(shown.length, 'episode')}${chosen ? ` with return ${rangeText(chosen)}` : ', lowest return first'}</h2>
        <a href=${all}>Show ${shown.length > MAX_ROWS ? `all ${shown.length}` : 'them'} by group</a></div>
      <div class="scroll-x" tabindex="0" role="region" aria-label="Episodes"><table>
        <thead><tr><th scope="col">Episode</th><th scope="col" class="number">Group</th><th scope="col" class="number">Return</th><th scope="col" class="number">Turns</th><th scope="col">End</th></tr></thead>
        <tbody>${shown.slice(0, MAX_ROWS).map(episode => html`<${Row} key=${episode.index} id=${store.id} file=${file} episode=${episode} single=${store.detail!.row.run.tags.length === 1} meanings=${store.detail!.ends?.[episode.tag]} />`)}</tbody>
      </table></div>
    </div>
  </section>`;
}

const rangeText = ({ low, high }: Bin): string =>
  short(low) === short(high) ? short(low) : `${short(low)} to ${short(high)}`;

function Bars({ bins, chosen }: { readonly bins: readonly Bin[]; readonly chosen?: Bin }) {
  const most = Math.max(...bins.map(({ count }) => count));
  const press = (bin: Bin) =>
    choose(bin === chosen ? { min: '', max: '' } : { min: String(bin.low), max: String(bin.high) });
  return html`<div class="strip low bars" role="group" aria-label="Returns">${bins.map(
    bin => html`<button key=${bin.low} type="button" class="quiet" aria-pressed=${String(bin === chosen)} onClick=${() => press(bin)}
      ><span>${bin.count}</span> <span class="visually-hidden">${bin.count === 1 ? 'episode' : 'episodes'} with return</span>
      <i style=${{ '--share': bin.count / most }}></i> <span class="fine">${rangeText(bin)}</span></button>`,
  )}</div>`;
}

interface RowProps {
  readonly id: string;
  readonly file: string;
  readonly episode: EpisodeDigest;
  /** True in runs of one environment. */
  readonly single: boolean;
  readonly meanings?: Meanings;
}

function Row({ id, file, episode, single, meanings }: RowProps) {
  const { index, group_id, member, turns, success, invalid, cut } = episode;
  const link = formatAddress({ view: 'episode', run: id, query: { file, index: String(index) } });
  const notes = [
    episodeEnd(episode, meanings).text,
    ...(invalid > 0 ? [`${counted(invalid, 'turn')} without a valid action`] : []),
    ...(cut ? ['cut off'] : []),
  ];
  return html`<tr>
    <td class="cut"><a href=${link}>${single && episode.seed !== null ? `Seed ${episode.seed}` : levelOf(episode)}</a></td>
    <td class="number">${group_id}.${member}</td><td class="number">${short(episode.return)}</td><td class="number">${turns}</td>
    <td><span class="outcome ${success ? 'good' : ''}">${successMark(success).sign}</span> ${notes.join(', ')}</td>
  </tr>`;
}

/** A bar of a histogram: the values from `low` to `high`, inclusive. */
interface Bin {
  readonly low: number;
  readonly high: number;
  readonly count: number;
}

/** Up to this many different values get a bar each. */
const MAX_VALUES = 8;
const BINS = 12;
/** Values that differ only in later digits come from another order of addition. */
const DIGITS = 9;

/** Bars over values: one for each different value where there are few, otherwise of equal width; none is empty. */
export function binsOf(values: readonly number[]): Bin[] {
  const known = values.filter(Number.isFinite);
  const low = Math.min(...known);
  const width = (Math.max(...known) - low) / BINS;
  const same = (value: number) => Number(value.toPrecision(DIGITS));
  const few = new Set(known.map(same)).size <= MAX_VALUES;
  const bins = new Map<number, Bin>();
  for (const value of known) {
    const place = few ? same(value) : Math.min(BINS - 1, Math.floor((value - low) / width));
    const bin = bins.get(place) ?? { low: value, high: value, count: 0 };
    bins.set(place, {
      low: Math.min(bin.low, value),
      high: Math.max(bin.high, value),
      count: bin.count + 1,
    });
  }
  return [...bins.values()].sort((a, b) => a.low - b.low);
}
