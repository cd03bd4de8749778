import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import type { RunsReply } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { type Address, formatAddress } from '../address.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { useSource } from '../data/hooks.ts';
import { ago, counted, duration, percent } from '../format.ts';
import { choose, PageTitle, StateChip, Status } from './parts.ts';

/** Rows that are asked for together. */
const PAGE_ROWS = 60;
const REFRESH_MS = 2000;
const ROW_HEIGHT = 44;
/** Rows drawn above and below the window. */
const SPARE_ROWS = 12;
/** Rows that are scrolled over before others are drawn. */
const STEP_ROWS = 8;

type Range = readonly [from: number, to: number];

/** The table of runs. */
export function RunsView({ address }: { readonly address: Address }) {
  const wanted = address.query.q ?? '';
  const [range, setRange] = useState<Range>([0, PAGE_ROWS]);
  const show = (next: Range) => setRange(now => (now[0] === next[0] && now[1] === next[1] ? now : next));
  const { rows, total, matching, error } = useRows(wanted, range);
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const tick = (id: string) => {
    const next = new Set(ticked);
    if (!next.delete(id)) next.add(id);
    setTicked(next);
  };
  const { trainer } = useSource().site;
  const few = ticked.size < 2;
  const known = wanted === '' ? counted(total, 'run') : `${matching} of ${counted(total, 'run')}`;
  return html`<div class="page-body">
    <${PageTitle} view="runs">
      <label class="search"><span class="visually-hidden">Search runs</span>
        <input type="search" placeholder="Name, recipe, environment, state …" value=${wanted}
          onInput=${(event: Event) => choose({ q: (event.currentTarget as HTMLInputElement).value }, true)} />
      </label>
      <a class="button ${few ? 'disabled' : 'primary'}" aria-disabled=${few}
        href=${few ? undefined : formatAddress({ view: 'compare', query: { runs: [...ticked].join(',') } })}>
        Compare ${few ? '' : counted(ticked.size, 'run')}</a>
    <//>
    <${Status} error=${error} loading=${!rows} />
    ${rows && html`<p class="fine" role="status">${known}${ticked.size === 1 ? ' · tick another to compare' : ''}</p>`}
    ${rows && total === 0 && html`<p class="panel">No runs yet. Start one: <code>${trainer} train ragen:quickstart</code></p>`}
    ${rows && matching > 0 && html`<${RunTable} rows=${rows} count=${matching} range=${range} onRange=${show} ticked=${ticked} onTick=${tick} />`}
  </div>`;
}

interface Rows {
  /** Rows by their place, as far as they were asked for. */
  readonly rows?: ReadonlyMap<number, RunRow>;
  readonly total: number;
  readonly matching: number;
  readonly error?: string;
}

/** The rows in a range, the latest first; they are asked for again while the page is looked at. */
function useRows(q: string, [from, to]: Range): Rows {
  const source = useSource();
  const [state, setState] = useState<Rows & { readonly q?: string }>({ total: 0, matching: 0 });
  const offset = Math.floor(from / PAGE_ROWS) * PAGE_ROWS;
  const limit = Math.ceil(Math.max(1, to - offset) / PAGE_ROWS) * PAGE_ROWS;
  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      try {
        const reply = await source.get<RunsReply>('runs', { offset, limit, q: q || undefined });
        if (!over) setState(before => ({ ...merged(before.q === q ? before.rows : undefined, reply), q }));
      } catch (error) {
        if (!over) setState(before => ({ ...before, error: (error as Error).message }));
      }
    };
    const again = async () => {
      if (!document.hidden) await read();
      if (!over && !source.site.exported) timer = setTimeout(again, REFRESH_MS);
    };
    void again();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [source, q, offset, limit]);
  return state;
}

/** Rows with those of a reply in their places. What lies far away is asked for again when it is scrolled to. */
function merged(known: ReadonlyMap<number, RunRow> = new Map(), reply: RunsReply): Rows {
  const { total, matching, offset, rows } = reply;
  const near = [...known].filter(([place]) => Math.abs(place - offset) < 10 * PAGE_ROWS);
  const before = rows.flatMap((_, i) => known.get(offset + i)?.id ?? []);
  const fresh = inPlace(before, rows).map((row, i) => [offset + i, row] as const);
  return { rows: new Map([...near, ...fresh]), total, matching };
}

/** The same runs keep their places: two that train would change them every second, under the pointer. */
export function inPlace(before: readonly string[], rows: readonly RunRow[]): readonly RunRow[] {
  const byId = new Map(rows.map(row => [row.id, row]));
  const kept = before.flatMap(id => byId.get(id) ?? []);
  return kept.length === rows.length ? kept : rows;
}

interface TableProps {
  readonly rows: ReadonlyMap<number, RunRow>;
  readonly count: number;
  readonly range: Range;
  readonly onRange: (range: Range) => void;
  readonly ticked: ReadonlySet<string>;
  readonly onTick: (id: string) => void;
}

/** Draws only the rows that are in the window: 10,000 of them would take seconds. */
function RunTable({ rows, count, range, onRange, ticked, onTick }: TableProps) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let asked = 0;
    const look = () => {
      asked = 0;
      if (!place.current) return;
      const { top } = place.current.getBoundingClientRect();
      const first = Math.max(0, Math.floor(-top / ROW_HEIGHT / STEP_ROWS) * STEP_ROWS - SPARE_ROWS);
      onRange([first, first + Math.ceil(innerHeight / ROW_HEIGHT) + STEP_ROWS + 2 * SPARE_ROWS]);
    };
    // Once a frame, when the layout is known.
    const soon = () => {
      asked ||= requestAnimationFrame(look);
    };
    soon();
    addEventListener('scroll', soon, { passive: true });
    addEventListener('resize', soon);
    return () => {
      cancelAnimationFrame(asked);
      removeEventListener('scroll', soon);
      removeEventListener('resize', soon);
    };
  }, []);
  const now = Date.now();
  const start = Math.min(range[0], count - 1);
  const end = Math.min(range[1], count);
  const places = Array.from({ length: end - start }, (_, i) => start + i);
  const space = (height: number) =>
    height > 0 && html`<tr aria-hidden="true" class="space"><td colspan="9" height=${height}></td></tr>`;
  return html`<div ref=${place} class="run-table" tabindex="0" role="region" aria-label="Table of runs">
    <table aria-rowcount=${count}>
      <thead><tr>
        <th scope="col"><span class="visually-hidden">Compare</span></th><th scope="col">Run</th><th scope="col">State</th>
        <th scope="col">Validation success</th><th scope="col" class="number">Before → after</th>
        <th scope="col">Recipe</th><th scope="col">Environments</th><th scope="col" class="number">Seed</th><th scope="col" class="number">Duration</th>
      </tr></thead>
      <tbody>
        ${space(start * ROW_HEIGHT)}
        ${places.map(at => {
          const row = rows.get(at);
          return row
            ? html`<${Row} key=${row.id} row=${row} now=${now} ticked=${ticked.has(row.id)} onTick=${onTick} />`
            : html`<tr key=${at} class="pending"><td></td><td colspan="8">…</td></tr>`;
        })}
        ${space((count - end) * ROW_HEIGHT)}
      </tbody>
    </table>
  </div>`;
}

interface RowProps {
  readonly row: RunRow;
  readonly now: number;
  readonly ticked: boolean;
  readonly onTick: (id: string) => void;
}

function Row({ row, now, ticked, onTick }: RowProps) {
  const { run, validations } = row;
  const first = validations.at(0);
  const last = validations.at(-1);
  const left = row.eta_s === null ? '' : `, ${duration(row.eta_s)} left`;
  const progress =
    row.state === 'running' ? `${row.stage}, step ${row.step} of ${row.steps}${left}` : ago(row.updated, now);
  return html`<tr>
    <td><input type="checkbox" checked=${ticked} aria-label=${`Compare ${row.id}`} onChange=${() => onTick(row.id)} /></td>
    <td class="name"><a href=${formatAddress({ view: 'overview', run: row.id })}>${row.id}</a></td>
    <td><${StateChip} row=${row} /> <span class="fine">${progress}</span></td>
    <td><${Sparkline} points=${validations} /></td>
    <td class="number">${last ? (first === last ? percent(last.success) : `${percent(first!.success)} → ${percent(last.success)}`) : '–'}</td>
    <td>${run.recipe.join(', ') || run.advantage || '–'}</td>
    <td class="cut" title=${run.tags.map(tag => tag.env_id).join(', ')}>${run.tags.map(tag => tag.tag).join(', ') || '–'}</td>
    <td class="number">${run.seed}</td>
    <td class="number">${row.seconds > 0 ? duration(row.seconds) : '–'}</td>
  </tr>`;
}
