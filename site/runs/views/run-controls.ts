import { useEffect, useState } from 'preact/hooks';
import { type ControlAction, SCHEDULE_KEYS, type Schedule } from '../../../shared/run-folder/control.ts';
import { html } from '../../components/html.ts';
import { isLocked } from '../../components/request.ts';
import type { RunRow } from '../../server/reader/runs-table.ts';
import { useSource } from '../data/hooks.ts';
import { Panel } from './parts.ts';
import { TokenForm } from './token-form.ts';

/** Milliseconds in which a second click stops the run. */
const CONFIRM_MS = 5000;
const LABELS: { readonly [key in (typeof SCHEDULE_KEYS)[number]]: string } = {
  validate_every: 'Validate every … steps',
  checkpoint_every: 'Checkpoint every … steps',
  stop_after: 'End after step',
};

interface ControlState {
  readonly text?: string;
  readonly error?: string;
  /** True if the server wants a token. */
  readonly isLocked?: boolean;
  readonly isBusy?: boolean;
}

/** Controls of a running trainer: stop, checkpoint, and when it validates, saves and ends. */
export function RunControls({ row }: { readonly row: RunRow }) {
  const source = useSource();
  const [state, setState] = useState<ControlState>({});
  const [isArmed, setArmed] = useState(false);
  useEffect(() => {
    if (!isArmed) return;
    const timer = setTimeout(() => setArmed(false), CONFIRM_MS);
    return () => clearTimeout(timer);
  }, [isArmed]);
  if (!source.site.control || row.state !== 'running' || row.started === null) return null;
  const session = new Date(row.started).toISOString();
  const send = async (action: ControlAction, schedule?: Schedule) => {
    setArmed(false);
    setState({ isBusy: true });
    try {
      const id = crypto.randomUUID();
      await source.control(row.id, { id, session, action, ...(schedule ? { schedule } : {}) });
      setState({ text: 'Sent. The notes of the trainer say when it is done.' });
    } catch (error) {
      setState({ error: (error as Error).message, isLocked: isLocked(error) });
    }
  };
  const apply = (event: SubmitEvent) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const changes = SCHEDULE_KEYS.filter(key => data.get(key) !== '').map(key => [
      key,
      Number(data.get(key)),
    ]);
    if (changes.length === 0) return setState({ error: 'Write a number into one of the fields first.' });
    void send('schedule', Object.fromEntries(changes) as Schedule);
  };
  return html`<${Panel} title="Control the trainer">
    <div class="row low controls">
      <button type="button" disabled=${state.isBusy} onClick=${() => send('checkpoint')}>Save a checkpoint</button>
      <button type="button" disabled=${state.isBusy} onClick=${() => (isArmed ? send('stop') : setArmed(true))}>${isArmed ? 'Press again to stop' : 'Stop'}</button>
    </div>
    <form class="row low controls" onSubmit=${apply}>
      ${SCHEDULE_KEYS.map(key => html`<label key=${key} class="field"><span>${LABELS[key]}</span><input type="number" name=${key} min="1" step="1" /></label>`)}
      <button type="submit" disabled=${state.isBusy}>Apply</button>
    </form>
    ${state.error !== undefined && html`<p class="fine outcome field-error" role="alert">${state.error}</p>`}
    ${state.isLocked && html`<${TokenForm} onToken=${() => setState({ text: 'Press the button again.' })} />`}
    <p class="fine" role="status">${state.text ?? 'Stop is Ctrl-C: it ends with a checkpoint. Changes hold until the run ends.'}</p>
  <//>`;
}
