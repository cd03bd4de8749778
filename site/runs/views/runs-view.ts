import { useEffect, useRef, useState } from 'preact/hooks';
import { type Annotations, MAX_NOTE_LENGTH, NO_ANNOTATIONS } from '../../../shared/run-folder/requests.ts';
import { counted } from '../../../shared/text.ts';
import { Command, Menu } from '../../components/buttons.ts';
import { html } from '../../components/html.ts';
import { listen } from '../../components/store.ts';
import { OUTCOMES, type Outcome } from '../../compute/outcome.ts';
import { listText, RUN_FIELDS, type RunGroup } from '../../compute/run-query.ts';
import type { RunsReply, RunsSummary } from '../../server/reader/run-reader.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { type Address, formatAddress } from '../address.ts';
import { useData, useSource } from '../data/hooks.ts';
import { percent } from '../format.ts';
import { choose, OUTCOME_LOOKS, openCompare, PageTitle, Select, Status, useKeys } from './parts.ts';
import {
  BUILT_IN_COLUMNS,
  columnIds,
  columnOf,
  columnsText,
  settingColumns,
  settingText,
} from './runs-columns.ts';
import { type Range, RunTable } from './runs-table.ts';

/** Rows requested together. */
const PAGE_ROWS = 60;
const REFRESH_MS = 2000;
/** Most settings in menus; others are typed. */
const MAX_SETTINGS = 40;
/** Sort orders on a phone, where the table has no head. */
const ORDERS = [
  ['', 'newest'],
  ['-success', 'success'],
  ['-gain', 'gain'],
  ['name', 'name'],
] as const;
const NO_SUMMARY: RunsSummary = { outcomes: {}, archived: 0, tags: [], settings: [] };

/** The table of runs, or of groups of them. */
export function RunsView({ address }: { readonly address: Address }) {
  const { q: wanted = '', sort = '', by = '', columns: chosenColumns } = address.query;
  const ids = columnIds(chosenColumns);
  const [range, setRange] = useState<Range>([0, PAGE_ROWS]);
  const show = (next: Range) => setRange(now => (now[0] === next[0] && now[1] === next[1] ? now : next));
  const [version, setVersion] = useState(0);
  const query = { q: wanted, sort, settings: listText(settingColumns(ids)) };
  const { rows, total, matching, error } = useRows(query, range, version);
  const { value: summary = NO_SUMMARY } = useData<RunsSummary>(rows && 'run-summary', {
    q: wanted || undefined,
    version: version || undefined,
  });
  const [ticked, setTicked] = useState<ReadonlyMap<string, RunRow>>(new Map());
  const tick = (row: RunRow) => {
    const next = new Map(ticked);
    if (!next.delete(row.id)) next.set(row.id, row);
    setTicked(next);
  };
  const current = new Map([...(rows?.values() ?? [])].map(row => [row.id, row]));
  const chosen = [...ticked.values()].map(row => current.get(row.id) ?? row);
  const { trainer } = useSource().site;
  useKeys({ c: () => openCompare([...ticked.keys()]) });
  const known = matching === total ? counted(total, 'run') : `${matching} of ${counted(total, 'run')}`;
  const enter = (event: KeyboardEvent) => {
    if (event.key === 'Enter') document.querySelector<HTMLElement>('.run-table .name a')?.focus();
  };
  return html`<div class="stack">
    <${PageTitle} view="runs">
      <label class="search grow"><span class="visually-hidden">Search runs</span>
        <input type="search" aria-keyshortcuts="/" placeholder="Name, or a setting: group_size>1 env:FrozenLake" value=${wanted} onKeyDown=${enter}
          onInput=${(event: Event) => choose({ q: (event.currentTarget as HTMLInputElement).value })} />
      </label>
    <//>
    <div class="row run-controls">
      <${OutcomeChips} q=${wanted} summary=${summary} />
      <${Controls} by=${by} sort=${sort} ids=${ids} summary=${summary} />
      <${DropTarget} />
    </div>
    <${Status} error=${error} loading=${!rows} />
    ${rows && total > 0 && html`<p class="fine"><span role="status">${known}${ticked.size === 1 ? ' · tick another to compare' : ''}</span> <span class="keys">· <kbd>/</kbd> search <kbd>C</kbd> compare</span></p>`}
    ${rows && total === 0 && html`<div class="panel"><p>No runs yet. Start one:</p><${Command} text=${`${trainer} train ragen:quickstart`} /></div>`}
    ${rows && total > 0 && matching === 0 && html`<p class="panel">No run matches. Fields of a search: ${Object.keys(RUN_FIELDS).join(', ')}, and every setting, with <code>:</code> <code>=</code> <code>!=</code> <code>${'<'}</code> <code>${'>'}</code>; archived runs: <code>is:archived</code>.</p>`}
    ${
      by !== ''
        ? html`<${Groups} by=${by} q=${wanted} />`
        : rows &&
          matching > 0 &&
          html`<${RunTable} rows=${rows} count=${matching} range=${range} onRange=${show} columns=${ids.map(columnOf)} sort=${sort} ticked=${ticked} onTick=${tick} />`
    }
    ${chosen.length > 0 && html`<${Selection} rows=${chosen} onClear=${() => setTicked(new Map())} onChanged=${() => setVersion(version + 1)} />`}
  </div>`;
}

/**
 * A query with one term changed.
 * @param term absent to remove the field's terms
 */
export function withTerm(q: string, field: string, term?: string): string {
  const others = q
    .split(/\s+/)
    .filter(part => part !== '' && !part.startsWith(`${field}:`) && !part.startsWith(`${field}=`));
  return [...others, ...(term === undefined ? [] : [term])].join(' ');
}

interface ChipsProps {
  readonly q: string;
  readonly summary: RunsSummary;
}

/** Outcomes with the number of runs, each a filter; a second click removes it. */
function OutcomeChips({ q, summary: { outcomes, archived } }: ChipsProps) {
  const words = q.split(/\s+/);
  const press = (field: string, term: string) => () =>
    choose({ q: withTerm(q, field, words.includes(term) ? undefined : term) });
  const shown = OUTCOMES.filter(outcome => outcomes[outcome] || words.includes(`state=${outcome}`));
  return html`<div class="row grow outcomes" role="group" aria-label="Outcome">
    ${shown.map(
      (outcome: Outcome) =>
        html`<button key=${outcome} type="button" class="small chip" data-sign=${OUTCOME_LOOKS[outcome][1]} aria-pressed=${String(words.includes(`state=${outcome}`))} onClick=${press('state', `state=${outcome}`)}>${outcome} <b>${outcomes[outcome] ?? 0}</b></button>`,
    )}
    ${archived > 0 && html`<button type="button" class="small chip" aria-pressed=${String(words.includes('is:archived'))} onClick=${press('is', 'is:archived')}>archived <b>${archived}</b></button>`}
  </div>`;
}

interface ControlsProps {
  readonly by: string;
  readonly sort: string;
  readonly ids: readonly string[];
  readonly summary: RunsSummary;
}

/** Grouping and columns. */
function Controls({ by, sort, ids, summary }: ControlsProps) {
  const settings = summary.settings
    .filter(key => !Object.hasOwn(RUN_FIELDS, key) && !key.startsWith('run.'))
    .slice(0, MAX_SETTINGS);
  const fields = ['env', 'recipe', 'advantage', 'model', 'seed', 'tag', 'state', ...settings];
  const groups = [...(by === '' || fields.includes(by) ? [] : [by]), ...fields];
  const flip = (id: string) =>
    choose({ columns: columnsText(ids.includes(id) ? ids.filter(one => one !== id) : [...ids, id]) });
  const box = (id: string, title: string) =>
    html`<label key=${id} class="check"><input type="checkbox" checked=${ids.includes(id)} onChange=${() => flip(id)} /> ${title}</label>`;
  const others = settingColumns(ids).filter(id => !settings.includes(id));
  const add = (event: Event) => {
    const { value } = event.currentTarget as HTMLInputElement;
    if (value !== '' && !ids.includes(value)) flip(value);
  };
  return html`<span class="on-phone"><${Select} inline label="Sort" value=${sort} options=${ORDERS} onChange=${(value: string) => choose({ sort: value })} /></span>
    <${Select} inline label="Group by" value=${by} options=${[['', 'nothing'] as const, ...groups.map(name => [name, name] as const)]} onChange=${(value: string) => choose({ by: value })} />
    <${Menu} label=${`Columns ${ids.length + 1}`}>
        ${BUILT_IN_COLUMNS.map(([id, title]) => box(id, title))}
        <b class="fine">Settings, those that differ first</b>
        ${[...others, ...settings].map(key => box(key, key))}
        <label class="field"><span>Another setting</span><input list="setting-keys" onChange=${add} /></label>
        <datalist id="setting-keys">${summary.settings.map(key => html`<option key=${key} value=${key}></option>`)}</datalist>
      <//>`;
}

/** Runs by the value of a field or setting. */
function Groups({ by, q }: { readonly by: string; readonly q: string }) {
  const { value: groups, error } = useData<readonly RunGroup[]>('run-groups', { by, q: q || undefined });
  if (!groups) return html`<${Status} error=${error} loading=${!error} />`;
  const link = (value: RunGroup['value']) =>
    formatAddress({ view: 'runs', query: { q: withTerm(q, by, `${by}=${value}`) } });
  const canLink = (value: RunGroup['value']) => value !== undefined && !/\s|^$/.test(String(value));
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label="Groups of runs"><table>
    <thead><tr><th scope="col">${by}</th><th scope="col" class="number">Runs</th><th scope="col" class="number">Mean success</th><th scope="col">Least to greatest</th><th scope="col"><span class="visually-hidden">Compare</span></th></tr></thead>
    <tbody>${groups.map(
      ({ value, runs, success, ids }) => html`<tr key=${String(value)}>
        <th scope="row">${canLink(value) ? html`<a href=${link(value)}>${settingText(value)}</a>` : settingText(value || undefined)}</th>
        <td class="number">${runs}</td><td class="number"><b>${success ? percent(success.mean) : '–'}</b></td>
        <td>${success ? `${percent(success.low)} to ${percent(success.high)}` : '–'}</td>
        <td>${ids.length > 1 && html`<a href=${formatAddress({ view: 'compare', query: { runs: listText(ids) } })}>Compare ${ids.length < runs ? `the latest ${ids.length}` : 'them'}<span class="visually-hidden"> with ${by} ${settingText(value)}</span></a>`}</td>
      </tr>`,
    )}</tbody></table></div>`;
}

interface Rows {
  /** Rows by index, as far as they were requested. */
  readonly rows?: ReadonlyMap<number, RunRow>;
  readonly total: number;
  readonly matching: number;
  readonly error?: string;
}

interface RowsQuery {
  readonly q: string;
  readonly sort: string;
  readonly settings: string;
}

/** The rows in a range; they are refreshed while the page is visible. */
function useRows({ q, sort, settings }: RowsQuery, [from, to]: Range, version: number): Rows {
  const source = useSource();
  const [state, setState] = useState<Rows & { readonly key?: string }>({ total: 0, matching: 0 });
  const offset = Math.floor(from / PAGE_ROWS) * PAGE_ROWS;
  const limit = Math.ceil(Math.max(1, to - offset) / PAGE_ROWS) * PAGE_ROWS;
  const key = JSON.stringify([q, sort, version]);
  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout>;
    const asked = {
      offset,
      limit,
      q: q || undefined,
      sort: sort || undefined,
      settings: settings || undefined,
    };
    const read = async () => {
      try {
        const reply = await source.get<RunsReply>('runs', asked);
        if (!over)
          setState(before => ({ ...merged(before.key === key ? before.rows : undefined, reply), key }));
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
  }, [source, key, settings, offset, limit]);
  return state;
}

/** Rows with those of a reply at their indices. Distant ones are requested again when they are scrolled to. */
function merged(known: ReadonlyMap<number, RunRow> = new Map(), reply: RunsReply): Rows {
  const { total, matching, offset, rows } = reply;
  const near = [...known].filter(([place]) => Math.abs(place - offset) < 10 * PAGE_ROWS);
  const before = rows.flatMap((_, i) => known.get(offset + i)?.id ?? []);
  const fresh = inPlace(before, rows).map((row, i) => [offset + i, row] as const);
  return { rows: new Map([...near, ...fresh]), total, matching };
}

/** The same runs keep their places: two active ones would swap every second, under the pointer. */
export function inPlace(before: readonly string[], rows: readonly RunRow[]): readonly RunRow[] {
  const byId = new Map(rows.map(row => [row.id, row]));
  const kept = before.flatMap(id => byId.get(id) ?? []);
  return kept.length === rows.length ? kept : rows;
}

/** Opens other programs' trajectories: by a button, or dropped anywhere on the page. */
function DropTarget() {
  const source = useSource();
  const input = useRef<HTMLInputElement>(null);
  const [state, setState] = useState<{
    readonly busy?: boolean;
    readonly over?: boolean;
    readonly error?: string;
  }>({});
  const open = async (list: FileList | null | undefined) => {
    const files = [...(list ?? [])];
    if (files.length === 0) return;
    setState({ busy: true });
    try {
      const run = await source.drop(files);
      setState({});
      location.hash = formatAddress({ view: 'episodes', run });
    } catch (error) {
      setState({ error: (error as Error).message });
    }
  };
  useEffect(() => {
    const hasFiles = ({ dataTransfer }: DragEvent) => dataTransfer?.types.includes('Files') ?? false;
    const onOver = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setState(now => (now.over ? now : { over: true }));
    };
    const onLeave = (event: DragEvent) => event.relatedTarget === null && setState({});
    const onDrop = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      void open(event.dataTransfer!.files);
    };
    return listen({ dragover: onOver, dragleave: onLeave, drop: onDrop });
  }, [source]);
  const onPick = (event: Event) => {
    const field = event.currentTarget as HTMLInputElement;
    void open(field.files).then(() => {
      field.value = '';
    });
  };
  const text = state.busy ? 'Reading …' : state.over ? 'Drop to open' : 'Open trajectories';
  return html`<button type="button" disabled=${state.busy} onClick=${() => input.current!.click()}
      title="JSON Lines of TRL, verl, RAGEN or verifiers, or an ATIF file; it stays in this page">${text}</button>
    <input ref=${input} type="file" multiple hidden accept=".jsonl,.json,.ndjson" aria-label="Files of trajectories" onChange=${onPick} />
    ${state.error !== undefined && html`<p class="fine outcome field-error" role="alert">${state.error}</p>`}`;
}

interface SelectionProps {
  readonly rows: readonly RunRow[];
  readonly onClear: () => void;
  /** Called after annotations were written. */
  readonly onChanged: () => void;
}

/** The bar of the chosen runs: compare, tag, note, archive. */
function Selection({ rows, onClear, onChanged }: SelectionProps) {
  const source = useSource();
  const [form, setForm] = useState<'tag' | 'note' | undefined>();
  const [error, setError] = useState<string>();
  const few = rows.length < 2;
  const allArchived = rows.every(({ annotations }) => annotations?.archived);
  const change = async (work: (before: Annotations) => Annotations) => {
    try {
      for (const { id, annotations = NO_ANNOTATIONS } of rows)
        await source.send('annotations', id, work(annotations));
      setForm(undefined);
      setError(undefined);
    } catch (problem) {
      setError((problem as Error).message);
    }
    onChanged();
  };
  const toggle = (name: 'tag' | 'note') => () => setForm(form === name ? undefined : name);
  return html`<section class="panel row selection" aria-label="Chosen runs">
    <b>${rows.length} chosen</b>
    ${
      !source.site.exported &&
      html`<button type="button" class="quiet" aria-expanded=${String(form === 'tag')} onClick=${toggle('tag')}>Tag</button>
      <button type="button" class="quiet" aria-expanded=${String(form === 'note')} onClick=${toggle('note')}>Note</button>
      <button type="button" class="quiet" onClick=${() => change(before => ({ ...before, archived: !allArchived }))}>${allArchived ? 'Take out of the archive' : 'Archive'}</button>`
    }
    <button type="button" class="quiet" onClick=${onClear}>Clear</button>
    <a class="button ${few ? '' : 'primary'}" aria-disabled=${few ? 'true' : undefined} aria-keyshortcuts="c" href=${few ? undefined : formatAddress({ view: 'compare', query: { runs: listText(rows.map(({ id }) => id)) } })}>
      Compare ${few ? '' : counted(rows.length, 'run')}</a>
    ${form === 'tag' && html`<${TagForm} rows=${rows} change=${change} />`}
    ${form === 'note' && html`<${NoteForm} rows=${rows} change=${change} />`}
    ${error !== undefined && html`<p class="fine outcome field-error" role="alert">${error}</p>`}
  </section>`;
}

interface FormProps {
  readonly rows: readonly RunRow[];
  readonly change: (work: (before: Annotations) => Annotations) => void;
}

function TagForm({ rows, change }: FormProps) {
  const [text, setText] = useState('');
  const present = [...new Set(rows.flatMap(({ annotations }) => annotations?.tags ?? []))];
  const add = (event: Event) => {
    event.preventDefault();
    const wanted = text.split(/[\s,]+/).filter(Boolean);
    change(before => ({ ...before, tags: [...new Set([...before.tags, ...wanted])] }));
  };
  return html`<form class="row low" onSubmit=${add}>
    <label class="field grow"><span>Tags to add, with spaces between them</span>
      <input value=${text} autofocus onInput=${(event: Event) => setText((event.currentTarget as HTMLInputElement).value)} /></label>
    <button type="submit" disabled=${text.trim() === ''}>Add</button>
    ${present.map(
      tag =>
        html`<button key=${tag} type="button" class="small" onClick=${() => change(before => ({ ...before, tags: before.tags.filter(name => name !== tag) }))}>${tag} ✕<span class="visually-hidden"> remove this tag</span></button>`,
    )}
  </form>`;
}

function NoteForm({ rows, change }: FormProps) {
  const [text, setText] = useState(rows.length === 1 ? (rows[0].annotations?.note ?? '') : '');
  const save = (event: Event) => {
    event.preventDefault();
    change(before => ({ ...before, note: text.trim() }));
  };
  return html`<form class="row low" onSubmit=${save}>
    <label class="field grow"><span>Note${rows.length > 1 ? ', the same for all of them' : ''}</span>
      <textarea maxlength=${MAX_NOTE_LENGTH} value=${text} onInput=${(event: Event) => setText((event.currentTarget as HTMLTextAreaElement).value)}></textarea></label>
    <button type="submit">Save</button>
  </form>`;
}
