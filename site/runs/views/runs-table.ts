import { useEffect, useRef } from 'preact/hooks';
import { html } from '../../components/html.ts';
import { listen } from '../../components/store.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { formatAddress } from '../address.ts';
import { choose, StateChip } from './parts.ts';
import { type Column, UNORDERED } from './runs-columns.ts';

/** Heights of a row on a wide page and on a phone, as in the style sheet. */
const HEIGHTS = { wide: 52, phone: 88 };
const PHONE = matchMedia('(max-width: 40rem)');
/** Rows rendered above and below the window. */
const SPARE_ROWS = 12;
/** Scrolled rows after which others are rendered. */
const STEP_ROWS = 8;

export type Range = readonly [from: number, to: number];

interface TableProps {
  readonly rows: ReadonlyMap<number, RunRow>;
  readonly count: number;
  readonly range: Range;
  readonly onRange: (range: Range) => void;
  readonly columns: readonly Column[];
  readonly sort: string;
  readonly ticked: ReadonlyMap<string, RunRow>;
  readonly onTick: (row: RunRow) => void;
}

/** Renders only the rows in the window: 10,000 of them would take seconds. */
export function RunTable({ rows, count, range, onRange, columns, sort, ticked, onTick }: TableProps) {
  const place = useRef<HTMLDivElement>(null);
  const rowHeight = PHONE.matches ? HEIGHTS.phone : HEIGHTS.wide;
  useEffect(() => {
    let asked = 0;
    const look = () => {
      asked = 0;
      if (!place.current) return;
      const { top } = place.current.getBoundingClientRect();
      const height = PHONE.matches ? HEIGHTS.phone : HEIGHTS.wide;
      const first = Math.max(0, Math.floor(-top / height / STEP_ROWS) * STEP_ROWS - SPARE_ROWS);
      onRange([first, first + Math.ceil(innerHeight / height) + STEP_ROWS + 2 * SPARE_ROWS]);
    };
    // Once a frame, when the layout is known.
    const soon = () => {
      asked ||= requestAnimationFrame(look);
    };
    soon();
    const forget = listen({ scroll: soon, resize: soon }, { passive: true });
    return () => {
      cancelAnimationFrame(asked);
      forget();
    };
  }, []);
  const now = Date.now();
  const start = Math.min(range[0], count - 1);
  const end = Math.min(range[1], count);
  const places = Array.from({ length: end - start }, (_, i) => start + i);
  // Without a colspan: a phone's table would divide its width among columns that it does not show.
  const space = (height: number) =>
    height > 0 && html`<tr aria-hidden="true" class="space"><td height=${height}></td></tr>`;
  return html`<div ref=${place} class="scroll-x run-table" tabindex="0" role="region" aria-label="Table of runs">
    <table aria-rowcount=${count}>
      <thead><tr>
        <th scope="col"><span class="visually-hidden">Compare</span></th>
        ${[{ id: 'name', title: 'Run' } as const, ...columns].map(
          column => html`<${Head} key=${column.id} column=${column} sort=${sort} />`,
        )}
      </tr></thead>
      <tbody>
        ${space(start * rowHeight)}
        ${places.map(at => {
          const row = rows.get(at);
          return row
            ? html`<${Row} key=${row.id} row=${row} now=${now} columns=${columns} ticked=${ticked.has(row.id)} onTick=${onTick} />`
            : html`<tr key=${at} class="pending"><td></td><td>…</td></tr>`;
        })}
        ${space((count - end) * rowHeight)}
      </tbody>
    </table>
  </div>`;
}

interface HeadProps {
  readonly column: Pick<Column, 'id' | 'title' | 'isNumber'>;
  readonly sort: string;
}

/** Title of a column; a click sorts by it, a second one in reverse, a third one restores the order. */
function Head({ column: { id, title, isNumber }, sort }: HeadProps) {
  const kind = `${isNumber ? 'number' : ''} column-${id.replace(/[^\w-]/g, '-')}`;
  if (UNORDERED.has(id)) return html`<th scope="col" class=${kind}>${title}</th>`;
  const order = sort === id ? 'ascending' : sort === `-${id}` ? 'descending' : undefined;
  const first = isNumber || id === 'success' ? `-${id}` : id;
  const second = first === id ? `-${id}` : id;
  const next = sort === first ? second : sort === second ? '' : first;
  return html`<th scope="col" class=${kind} aria-sort=${order} title=${id}>
    <button type="button" class="link" onClick=${() => choose({ sort: next })}>${title}${order === undefined ? '' : html`<span aria-hidden="true">${order === 'ascending' ? ' ▲' : ' ▼'}</span>`}</button></th>`;
}

interface RowProps {
  readonly row: RunRow;
  readonly now: number;
  readonly columns: readonly Column[];
  readonly ticked: boolean;
  readonly onTick: (row: RunRow) => void;
}

function Row({ row, now, columns, ticked, onTick }: RowProps) {
  const { tags = [], note = '' } = row.annotations ?? {};
  return html`<tr>
    <td><input type="checkbox" checked=${ticked} aria-label=${`Compare ${row.id}`} onChange=${() => onTick(row)} /></td>
    <td class="cut name"><a href=${formatAddress({ view: 'overview', run: row.id })}>${row.id}</a>
      ${tags.map(tag => html` <span class="chip" key=${tag}>${tag}</span>`)}
      ${note !== '' && html`<span class="fine cut note-text" title=${note}>${note}</span>`}
      <span class="on-phone"><span class="cut"><${StateChip} row=${row} /> <span class="fine">${row.run.tags.map(({ tag }) => tag).join(', ')}</span></span></span></td>
    ${columns.map(({ id, isNumber, cell }) => html`<td key=${id} class="${isNumber ? 'number' : ''} column-${id.replace(/[^\w-]/g, '-')}">${cell(row, now)}</td>`)}
  </tr>`;
}
