import { useState } from 'preact/hooks';
import { type Annotations, MAX_NOTE_LENGTH, NO_ANNOTATIONS } from '../../../shared/run-folder/annotations.ts';
import { html } from '../../components/html.ts';
import { listText } from '../../compute/list-text.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { formatAddress } from '../address.ts';
import { useSource } from '../data/hooks.ts';
import { counted } from '../format.ts';

interface SelectionProps {
  readonly rows: readonly RunRow[];
  readonly onClear: () => void;
  /** Called after annotations were written. */
  readonly onChanged: () => void;
}

/** The bar of the chosen runs: compare, tag, note, archive. */
export function Selection({ rows, onClear, onChanged }: SelectionProps) {
  const source = useSource();
  const [form, setForm] = useState<'tag' | 'note' | undefined>();
  const [error, setError] = useState<string>();
  const few = rows.length < 2;
  const allArchived = rows.every(({ annotations }) => annotations?.archived);
  const change = async (work: (before: Annotations) => Annotations) => {
    try {
      for (const { id, annotations = NO_ANNOTATIONS } of rows) await source.annotate(id, work(annotations));
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
