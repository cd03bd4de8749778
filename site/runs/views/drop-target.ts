import { useEffect, useRef, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import { formatAddress } from '../address.ts';
import { useSource } from '../data/hooks.ts';

/** Opens other programs' trajectories: by a button, or dropped anywhere on the page. */
export function DropTarget() {
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
    addEventListener('dragover', onOver);
    addEventListener('dragleave', onLeave);
    addEventListener('drop', onDrop);
    return () => {
      removeEventListener('dragover', onOver);
      removeEventListener('dragleave', onLeave);
      removeEventListener('drop', onDrop);
    };
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
