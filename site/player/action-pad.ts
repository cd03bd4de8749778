import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Json } from '../../shared/json.ts';
import { CodeField, jsonText, NotJson, parseJson, revealFault, textOf } from '../components/fields.ts';
import { html } from '../components/html.ts';
import { useUniqueId } from '../components/store.ts';
import { CodeEditor, keepProgram, keptProgram, type ProgramTask, startOf } from './code-editor.ts';
import { formatValue } from './format.ts';
import { actionsOf, type KeyedAction, keyedActions, MAX_BUTTONS, spaceOf } from './keys.ts';
import type { Environment } from './wire.ts';

/** Longest text for which a one-line field is used. */
const LONG_TEXT = 4000;
const ARROW_PAD = 4;

interface PadProps {
  readonly environment: Environment;
  readonly act: (action: Json) => void;
}

interface ActionPadProps extends PadProps {
  /** The programming task, where programs are written. */
  readonly task?: ProgramTask;
  /** Name of the group. */
  readonly label?: string;
}

/** Ways to act, by the action space: buttons with keys, a text field, an editor, or JSON. */
export function ActionPad({ environment, act, task, label = 'Actions' }: ActionPadProps) {
  return html`<div class="stack pad" role="group" aria-label=${label}>
    ${task ? html`<${ProgramPad} key=${task.statement} environment=${environment} act=${act} task=${task} />` : pad(environment, act)}
  </div>`;
}

/** An editor that begins with the signature, or with the program written before. */
function ProgramPad({ environment, act, task }: PadProps & { readonly task: ProgramTask }) {
  // Kept between renders: the editor reports faster than the page is rendered.
  const text = useRef<string | undefined>(undefined);
  text.current ??= keptProgram(task) ?? startOf(task);
  const [isMissing, miss] = useState(false);
  const [starts, start] = useState(0);
  const write = (program: string) => {
    text.current = program;
    keepProgram(task, program);
  };
  const startAgain = () => {
    write(startOf(task));
    start(starts + 1);
  };
  const send = () => act(text.current!);
  const submit = (event: Event) => {
    event.preventDefault();
    send();
  };
  if (isMissing)
    return html`<${TextPad} environment=${environment} max=${LONG_TEXT + 1} start=${text.current} act=${act} />`;
  return html`<form class="act several" onSubmit=${submit}>
    <span class="fine">Action</span>
    <${CodeEditor} key=${starts} label="Action" start=${text.current} onText=${write} send=${send} onfail=${() => miss(true)} />
    <button type="submit" class="primary">Send</button>
  </form>
  <p class="hint">Ctrl+Enter sends; Escape and then Tab leaves the editor.${' '}
    <button type="button" class="link" onClick=${startAgain}>Start again</button></p>`;
}

function pad(environment: Environment, act: PadProps['act']) {
  const space = spaceOf(environment);
  if (space.type === 'Text')
    return html`<${TextPad} environment=${environment} max=${space.max_length} act=${act} />`;
  if (space.type !== 'Discrete')
    return html`<${JsonPad} environment=${environment} label="Action" act=${act} />`;
  const actions = actionsOf(environment);
  return actions.length > MAX_BUTTONS
    ? html`<${Choice} actions=${actions} act=${act} />`
    : html`<${Buttons} actions=${keyedActions(environment)} act=${act} />`;
}

interface ButtonsProps extends Pick<PadProps, 'act'> {
  readonly actions: readonly KeyedAction[];
}

function Buttons({ actions, act }: ButtonsProps) {
  const isArrow = ({ key }: KeyedAction) => key?.name.startsWith('Arrow') === true;
  const isArrowPad = actions.length === ARROW_PAD && actions.every(isArrow);
  return html`<div class="row buttons ${isArrowPad ? 'arrows' : ''}">${actions.map(each => {
    const { action, key } = each;
    return html`<button key=${String(action)} type="button" class="action" data-key=${key?.name} aria-keyshortcuts=${key?.name}
      style=${isArrow(each) ? { gridArea: key!.name } : undefined} onClick=${() => act(action)}>
      ${String(action)}${key && html`<kbd aria-hidden="true">${key.hint}</kbd>`}
    </button>`;
  })}</div>`;
}

function Choice({ actions, act }: Pick<PadProps, 'act'> & { readonly actions: readonly Json[] }) {
  const list = useUniqueId();
  const [text, write] = useState('');
  return html`<${Line} text=${text} onText=${write} list=${list} placeholder="${actions.length} actions"
    send=${() => act(typeof actions[0] === 'number' ? Number(text) : text)}>
    <datalist id=${list}>${actions.map(action => html`<option key=${String(action)} value=${String(action)} />`)}</datalist>
  <//>`;
}

interface TextPadProps extends PadProps {
  readonly max: number;
  readonly start?: string;
}

function TextPad({ environment, max, act, start = '' }: TextPadProps) {
  const [text, write] = useState(start);
  const [several, setSeveral] = useState(max > LONG_TEXT);
  const place = useRef<HTMLDivElement>(null);
  // The text of a button below continues in the field.
  const [filled, fill] = useState(0);
  useLayoutEffect(() => {
    if (filled > 0 && text !== '') place.current!.querySelector<HTMLElement>('[data-action-field]')?.focus();
  }, [filled]);
  const change = (work: () => void) => () => {
    work();
    fill(filled + 1);
  };
  const { action_format: format, example_action: example } = environment;
  return html`<div ref=${place} class="stack tight">
    <${Line} key=${String(several)} several=${several} text=${text} onText=${write} send=${() => act(text)} />
    <p class="hint">
      ${format !== undefined && `Write ${format}. `}${several && 'Ctrl+Enter sends. '}
      <button type="button" class="link" onClick=${change(() => write(formatValue(example)))}>example</button>${' or '}
      <button type="button" class="link" onClick=${change(() => setSeveral(!several))}>${several ? 'one line' : 'several lines'}</button>
    </p>
  </div>`;
}

interface LineProps {
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly send: () => void;
  readonly several?: boolean;
  readonly list?: string;
  readonly placeholder?: string;
  readonly children?: unknown;
}

/** A field with a button; its text is sent and stays selected, to be typed over. */
function Line({ text, onText, send, several, list, placeholder, children }: LineProps) {
  const id = useUniqueId();
  const field = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  const attributes = {
    id,
    ref: field,
    class: 'code',
    placeholder,
    autocomplete: 'off',
    autocapitalize: 'off',
    spellcheck: false,
    'data-action-field': '',
    value: text,
    onInput: (event: Event) => onText(textOf(event)),
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) field.current!.form!.requestSubmit();
  };
  const submit = (event: Event) => {
    event.preventDefault();
    send();
    field.current!.select();
  };
  return html`<form class="act ${several ? 'several' : ''}" onSubmit=${submit}>
    <label for=${id}>Action</label>
    ${
      several
        ? html`<textarea ...${attributes} rows="6" onKeyDown=${press} />`
        : html`<input ...${attributes} type="text" list=${list} />`
    }
    <button type="submit" class="primary">Send</button>
    ${children}
  </form>`;
}

function JsonPad({ environment, label, act }: PadProps & { readonly label: string }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, write] = useState(() => jsonText(environment.example_action));
  const [error, fail] = useState<string | undefined>(undefined);
  const submit = (event: Event) => {
    event.preventDefault();
    try {
      const action = parseJson(label, text);
      fail(undefined);
      act(action);
    } catch (fault) {
      if (!(fault instanceof NotJson)) throw fault;
      fail(fault.message);
      revealFault(field.current!, fault);
    }
  };
  return html`<form class="act several" onSubmit=${submit}>
    <${CodeField} label=${label} text=${text} onText=${write} rows=${3} error=${error} field=${field} />
    <button type="submit" class="primary">Send</button>
  </form>`;
}

/** A collapsed field for any JSON; nothing where the pad already is one. */
export function AnyAction({ environment, act }: PadProps) {
  const { type } = spaceOf(environment);
  if (type !== 'Discrete' && type !== 'Text') return null;
  return html`<details class="stack anything">
    <summary>Send any JSON</summary>
    <${JsonPad} environment=${environment} label="Action as JSON" act=${act} />
    <p class="hint">To see how the server answers an action it does not know.</p>
  </details>`;
}
