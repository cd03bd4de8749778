import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { html } from '../../../web/html.ts';
import type { RunsReply } from '../../reader/run-reader.ts';
import type { RunRow } from '../../reader/runs-table.ts';
import { type Address, formatAddress } from '../address.ts';
import { Sparkline } from '../charts/sparkline.ts';
import { useSource } from '../data/hooks.ts';
import { ago, counted, duration, percent } from '../format.ts';
import { choose, StateChip, Status } from './parts.ts';

/** Rows that are asked for first, so that something is there at once. */
const FIRST_ROWS = 60;
const REFRESH_MS = 2000;
const ROW_HEIGHT = 44;
/** Rows drawn above and below the window. */
const SPARE_ROWS = 12;

/** The table of runs. */
export function RunsView({ address }: { readonly address: Address }) {
  const { rows, total, error } = useRuns();
  const [ticked, setTicked] = useState<ReadonlySet<string>>(new Set());
  const wanted = (address.query.q ?? '').toLowerCase();
  const shown = useMemo(() => rows?.filter(row => matches(row, wanted)), [rows, wanted]);
  const tick = (id: string) => {
    const next = new Set(ticked);
    if (!next.delete(id)) next.add(id);
    setTicked(next);
  };
  return html`<div class="page-body">
    <div class="title-row">
      <h1>Runs</h1>
      <label class="search"><span class="visually-hidden">Search runs</span>
        <input type="search" placeholder="Name, recipe, environment, state …" value=${address.query.q ?? ''}
          onInput=${(event: Event) => choose({ q: (event.currentTarget as HTMLInputElement).value }, true)} />
      </label>
      <a class="button ${ticked.size < 2 ? 'disabled' : 'primary'}" aria-disabled=${ticked.size < 2}
        href=${ticked.size < 2 ? undefined : formatAddress({ view: 'compare', query: { runs: [...ticked].join(',') } })}>
        Compare ${ticked.size > 1 ? counted(ticked.size, 'run') : ''}</a>
    </div>
    <${Status} error=${error} loading=${!rows} />
    ${shown && html`<p class="fine" role="status">${wanted === '' ? counted(total, 'run') : `${shown.length} of ${counted(total, 'run')}`}${ticked.size === 1 ? ' · tick another to compare' : ''}</p>`}
    ${rows?.length === 0 && html`<p class="panel">No runs yet. Start one: <code>npm start</code></p>`}
    ${shown && shown.length > 0 && html`<${RunTable} rows=${shown} ticked=${ticked} onTick=${tick} />`}
  </div>`;
}

/** All rows, the latest first; those that changed are asked for again while the page is looked at. */
function useRuns(): { readonly rows?: readonly RunRow[]; readonly total: number; readonly error?: string } {
  const source = useSource();
  const [reply, setReply] = useState<Partial<RunsReply> & { error?: string }>({});
  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout>;
    let known: RunsReply | undefined;
    const read = async (limit?: number) => {
      try {
        const next = await source.get<RunsReply>('runs', source.site.exported ? {} : { limit });
        known = merged(known, next);
        if (!over) setReply(known);
      } catch (error) {
        if (!over) setReply(before => ({ ...before, error: (error as Error).message }));
      }
    };
    const again = async () => {
      if (!document.hidden) await read(known && known.rows.length === known.total ? FIRST_ROWS : undefined);
      if (!over && !source.site.exported) timer = setTimeout(again, REFRESH_MS);
    };
    void read(FIRST_ROWS).then(() => {
      const more = known !== undefined && known.rows.length < known.total;
      if (!over) timer = setTimeout(again, more ? 0 : REFRESH_MS);
    });
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [source]);
  return { rows: reply.rows, total: reply.total ?? 0, error: reply.error };
}

/** The rows that changed last in front of those that are known; less is known where runs came or went. */
function merged(known: RunsReply | undefined, latest: RunsReply): RunsReply {
  if (!known || known.total !== latest.total || latest.rows.length === latest.total) return latest;
  const ids = new Set(latest.rows.map(({ id }) => id));
  return { total: latest.total, rows: [...latest.rows, ...known.rows.filter(({ id }) => !ids.has(id))] };
}

function matches(row: RunRow, wanted: string): boolean {
  if (wanted === '') return true;
  const { run } = row;
  const texts = [
    row.id,
    row.state,
    run.advantage,
    run.model,
    ...run.recipe,
    ...run.tags.map(tag => tag.env_id),
    `seed ${run.seed}`,
  ];
  return wanted.split(/\s+/).every(word => texts.some(text => text.toLowerCase().includes(word)));
}

interface TableProps {
  readonly rows: readonly RunRow[];
  readonly ticked: ReadonlySet<string>;
  readonly onTick: (id: string) => void;
}

/** Draws only the rows that are in the window: 10,000 of them would take seconds. */
function RunTable({ rows, ticked, onTick }: TableProps) {
  const place = useRef<HTMLDivElement>(null);
  const [[from, to], setRange] = useState<readonly [number, number]>([0, 40]);
  useEffect(() => {
    const look = () => {
      const { top } = place.current!.getBoundingClientRect();
      const first = Math.max(0, Math.floor(-top / ROW_HEIGHT) - SPARE_ROWS);
      setRange([first, first + Math.ceil(innerHeight / ROW_HEIGHT) + 2 * SPARE_ROWS]);
    };
    look();
    addEventListener('scroll', look, { passive: true });
    addEventListener('resize', look);
    return () => {
      removeEventListener('scroll', look);
      removeEventListener('resize', look);
    };
  }, []);
  const now = Date.now();
  const start = Math.min(from, Math.max(0, rows.length - 1));
  const drawn = rows.slice(start, to);
  const space = (height: number) =>
    height > 0 && html`<tr aria-hidden="true" class="space"><td colspan="9" height=${height}></td></tr>`;
  return html`<div ref=${place} class="run-table" tabindex="0" role="region" aria-label="Table of runs">
    <table aria-rowcount=${rows.length}>
      <thead><tr>
        <th scope="col"><span class="visually-hidden">Compare</span></th><th scope="col">Run</th><th scope="col">State</th>
        <th scope="col">Validation success</th><th scope="col" class="number">Before → after</th>
        <th scope="col">Recipe</th><th scope="col">Environments</th><th scope="col" class="number">Seed</th><th scope="col" class="number">Duration</th>
      </tr></thead>
      <tbody>
        ${space(start * ROW_HEIGHT)}
        ${drawn.map(row => html`<${Row} key=${row.id} row=${row} now=${now} ticked=${ticked.has(row.id)} onTick=${onTick} />`)}
        ${space((rows.length - start - drawn.length) * ROW_HEIGHT)}
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
    <td><${StateChip} state=${row.state} /> <span class="fine">${progress}</span></td>
    <td><${Sparkline} points=${validations} /></td>
    <td class="number">${last ? (first === last ? percent(last.success) : `${percent(first!.success)} → ${percent(last.success)}`) : '–'}</td>
    <td>${run.recipe.join(', ') || run.advantage || '–'}</td>
    <td class="cut" title=${run.tags.map(tag => tag.env_id).join(', ')}>${run.tags.map(tag => tag.tag).join(', ') || '–'}</td>
    <td class="number">${run.seed}</td>
    <td class="number">${row.seconds > 0 ? duration(row.seconds) : '–'}</td>
  </tr>`;
}
