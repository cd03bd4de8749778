import type { ValidationPoint } from '../../../shared/run-folder/run-files.ts';
import { html } from '../../components/html.ts';
import { listOf, listText } from '../../compute/run-query.ts';
import type { SettingValue } from '../../compute/settings-text.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { SuccessBar } from '../charts/plane.ts';
import { ago, duration, percent, short, timeLeft } from '../format.ts';
import { StateChip } from './parts.ts';

/** A column of the table of runs; its id is also its sort key. */
export interface Column {
  readonly id: string;
  readonly title: string;
  readonly isNumber?: true;
  readonly cell: (row: RunRow, now: number) => unknown;
}

const BUILT_IN: readonly Column[] = [
  { id: 'state', title: 'State', cell: state },
  { id: 'success', title: 'Success', cell: success },
  { id: 'gain', title: 'Gain', isNumber: true, cell: gain },
  {
    id: 'curve',
    title: 'Validations',
    cell: ({ validations }) => html`<${Sparkline} points=${validations} />`,
  },
  { id: 'env', title: 'Environment', cell: ({ run }) => names(run.tags.map(({ tag }) => tag)) },
  {
    id: 'recipe',
    title: 'Recipe',
    cell: ({ run }) => names(run.recipe.length > 0 ? run.recipe : [run.advantage]),
  },
  { id: 'advantage', title: 'Advantage', cell: ({ run }) => run.advantage || '–' },
  { id: 'model', title: 'Model', cell: ({ run }) => names([run.model]) },
  {
    id: 'seed',
    title: 'Seed',
    isNumber: true,
    cell: ({ run }) => (run.format === undefined ? run.seed : '–'),
  },
  { id: 'steps', title: 'Steps', isNumber: true, cell: steps },
  {
    id: 'time',
    title: 'Time',
    isNumber: true,
    cell: ({ seconds }) => (seconds > 0 ? duration(seconds) : '–'),
  },
  { id: 'updated', title: 'Last sign', isNumber: true, cell: ({ updated }, now) => ago(updated, now) },
];
const DEFAULT = ['state', 'success', 'gain', 'curve', 'env', 'recipe', 'seed', 'steps', 'time', 'updated'];
/** Columns that cannot be sorted. */
export const UNORDERED = new Set(['curve']);
const MAX_COLUMNS = 24;

/** Ids of the columns in an address; the default ones without any. */
export function columnIds(columns: string | undefined): readonly string[] {
  const ids = listOf(columns ?? '')
    .filter(Boolean)
    .slice(0, MAX_COLUMNS);
  return ids.length === 0 ? DEFAULT : [...new Set(ids)];
}

/** The address's form of columns; empty for the default ones. */
export function columnsText(ids: readonly string[]): string {
  return ids.join() === DEFAULT.join() ? '' : listText(ids);
}

export const BUILT_IN_COLUMNS: readonly (readonly [id: string, title: string])[] = BUILT_IN.map(
  ({ id, title }) => [id, title],
);

/** Settings that the rows of these columns need. */
export function settingColumns(ids: readonly string[]): string[] {
  return ids.filter(id => !BUILT_IN.some(column => column.id === id));
}

/** @param id of a built-in column, or the key of a setting */
export function columnOf(id: string): Column {
  const builtIn = BUILT_IN.find(column => column.id === id);
  if (builtIn) return builtIn;
  return {
    id,
    title: id.slice(id.lastIndexOf('.') + 1),
    cell: ({ settings }) => settingText(settings?.[id]),
  };
}

/** A setting's value for a cell. */
export function settingText(value: SettingValue | undefined): string {
  if (value === undefined || value === null) return '–';
  return typeof value === 'number'
    ? Number.isInteger(value)
      ? String(value)
      : short(value).replace('−', '-')
    : String(value);
}

const names = (list: readonly string[]) => {
  const text = list.join(', ');
  return html`<span class="cut" title=${text}>${text || '–'}</span>`;
};

function state(row: RunRow, now: number) {
  const left = row.eta_s === null ? '' : `, ${timeLeft(row.eta_s)}`;
  const running = `${row.stage}${left}`;
  const silent = `silent for ${duration((now - row.updated) / 1000)}`;
  const more = row.state === 'running' ? running : row.state === 'stalled' ? silent : '';
  return html`<${StateChip} row=${row} />${more && html`<span class="fine cut">${more}</span>`}`;
}

function success({ validations, run }: RunRow) {
  const last = validations.at(-1);
  if (!last) return '–';
  const { random = null, optimum = null } = run.tags.length === 1 ? run.tags[0] : {};
  return html`<span class="success-cell"><b class="large">${percent(last.success)}</b><${SuccessBar} last=${last} random=${random} optimum=${optimum} /></span>`;
}

function gain({ validations }: RunRow) {
  if (validations.length < 2) return '–';
  const points = Math.round(100 * (validations.at(-1)!.success - validations[0].success));
  return points > 0 ? `+${points}` : String(points).replace('-', '−');
}

function steps({ state: of, step, steps: all }: RunRow) {
  return of === 'finished' || step === all ? step : `${step} of ${all}`;
}

const WIDTH = 96;
const HEIGHT = 24;
const EDGE = 2;

/** Validation success over the steps of a run, from 0 to 1, without axes; the numbers are next to it. */
function Sparkline({ points }: { readonly points: readonly ValidationPoint[] }) {
  if (points.length < 2) return html`<svg width=${WIDTH} height=${HEIGHT} aria-hidden="true"></svg>`;
  const last = points.at(-1)!.step || 1;
  const at = ({ step, success }: ValidationPoint) =>
    `${(EDGE + (step / last) * (WIDTH - 2 * EDGE)).toFixed(1)},${(HEIGHT - EDGE - success * (HEIGHT - 2 * EDGE)).toFixed(1)}`;
  return html`<svg width=${WIDTH} height=${HEIGHT} aria-hidden="true">
    <polyline fill="none" stroke="var(--accent)" stroke-width="1.5" points=${points.map(at).join(' ')} />
  </svg>`;
}
