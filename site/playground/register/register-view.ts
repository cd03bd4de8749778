import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { parseJson } from '../../../shared/json.ts';
import { counted } from '../../../shared/text.ts';
import { CodeField, revealFault, selectRange, textOf } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { LINE, ProblemNote, type Violation } from '../../components/request.ts';
import { useStore, useUniqueId } from '../../components/store.ts';
import type { Registration } from '../../player/wire.ts';
import { type Address, formatAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import { RequestLog } from '../components/request-log.ts';
import type { Registrar } from './registrar.ts';

const DEFINITION = '/definition';
const SOURCE = '/definition/source';

interface RegisterViewProps {
  readonly client: Client;
  readonly registrar: Registrar;
  readonly address: Address & { readonly view: 'register' };
}

/** The visitor's own environments: written from an example, checked and registered, loaded, replaced, removed. */
export function RegisterView({ client, registrar, address }: RegisterViewProps) {
  useLayoutEffect(() => {
    const { envId } = address;
    const begin = async () => {
      await registrar.offerExamples();
      if (envId !== undefined) await registrar.load(envId);
    };
    void begin();
  }, [address]);
  return html`<div class="stack columns register-view">
    <section class="stack editor" aria-labelledby="register-title">
      <h1 id="register-title" tabindex="-1">Register an environment</h1>
      <p class="prose">Write down a table of states or a script, or start from another kind. The server plays it before it accepts it; then anybody may play it under its id.</p>
      <${Examples} registrar=${registrar} />
      <${Editor} registrar=${registrar} />
    </section>
    <div class="stack side">
      <${Report} registrar=${registrar} />
      <${RequestLog} client=${client} />
    </div>
  </div>`;
}

interface RegistrarProps {
  readonly registrar: Registrar;
}

function Examples({ registrar }: RegistrarProps) {
  const id = useUniqueId();
  const { examples, examplesProblem } = useStore(registrar.store);
  return html`<${ProblemNote} problem=${examplesProblem} />
    <p class="pair"><label for=${id}>Start from</label>
      <select id=${id} onChange=${(event: Event) => registrar.useExample(textOf(event))}>${Object.entries(
        examples,
      ).map(
        ([kind, { summary }]) => html`<option key=${kind} value=${kind}>${summary}</option>`,
      )}</select></p>`;
}

/** Fields for id and definition; the source of a script has a separate field. */
function Editor({ registrar }: RegistrarProps) {
  const id = useUniqueId();
  const { envId, definition, source, fault } = useStore(registrar.store);
  const [isAsking, ask] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    if (fault) revealFault(area.current!, fault);
  }, [fault]);
  const submit = (event: Event) => {
    event.preventDefault();
    void registrar.send('POST');
  };
  // The first click asks, the second one removes.
  const remove = () => {
    ask(!isAsking);
    if (isAsking) void registrar.remove(envId.trim());
  };
  return html`<form class="stack" onSubmit=${submit}>
    <div class="stack definition-editor">
      <div class="field"><label for=${id}>Environment id</label>
        <div class="pair"><input id=${id} type="text" class="code grow" spellcheck=${false} autocomplete="off" value=${envId}
          data-field="id" onInput=${(event: Event) => registrar.write({ envId: textOf(event) })} />
          <button type="button" onClick=${() => registrar.load(envId.trim())}>Load</button></div></div>
      <${CodeField} label="Definition" rows=${16} text=${definition} error=${fault?.message} field=${area}
        onText=${(text: string) => registrar.write({ definition: text })} />
      ${
        source !== undefined &&
        html`<${CodeField} label="Source in JavaScript" rows=${18} isProgram text=${source}
          onText=${(text: string) => registrar.write({ source: text })} />`
      }
    </div>
    <div class="row">
      <button type="submit" class="primary">Check and register</button>
      <button type="button" onClick=${() => registrar.send('PUT')}>Replace</button>
      <button type="button" onClick=${remove} onBlur=${() => ask(false)}>${isAsking ? `Really remove ${envId.trim()}?` : 'Remove'}</button>
    </div>
  </form>`;
}

/** Moves to the place of a violation in the editor. */
function reveal({ pointer, detail }: Violation): void {
  const editor = document.querySelector('.definition-editor')!;
  const [definition, source] = editor.querySelectorAll('textarea');
  const line = LINE.exec(detail);
  if (line && source) revealLine(source, Number(line[1]));
  else if (pointer.startsWith(SOURCE) && source) selectRange(source, 0, source.value.length);
  else if (pointer.startsWith(DEFINITION)) revealPointer(definition, pointer.slice(DEFINITION.length));
  else editor.querySelector<HTMLElement>('[data-field="id"]')!.focus();
}

/** Result of the last request. */
function Report({ registrar }: RegistrarProps) {
  const { report, problem } = useStore(registrar.store);
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (report.kind !== 'none' && report.kind !== 'working')
      place.current!.scrollIntoView({ block: 'nearest' });
  }, [report]);
  return html`<section class="panel" aria-labelledby="report-title">
    <div class="panel-head"><h2 id="report-title">Report</h2></div>
    <div ref=${place} role="status">${textOfReport(report)}</div>
    <${ProblemNote} problem=${problem} reveal=${reveal} />
  </section>`;
}

function textOfReport(report: Registrar['store']['state']['report']) {
  switch (report.kind) {
    case 'none':
      return html`<p class="hint">The server’s checks appear here: whether the definition is well-formed, resets and steps, keeps to its spaces, and gives the same episode for the same seed.</p>`;
    case 'working':
      return html`<p class="hint">The server is at it …</p>`;
    case 'refused':
      return html`<p><span class="chip bad">refused</span> Nothing was changed.</p>`;
    case 'loaded':
      return html`<p>Loaded <code>${report.envId}</code>. Replace puts your changes in its place.</p>`;
    case 'removed':
      return html`<p><code>${report.envId}</code> was removed.</p>`;
    case 'registered':
      return html`<${Accepted} ...${report.registration} />`;
  }
}

/** Report on an environment that the server accepted. */
function Accepted({ env_id: envId, kind, revision, durable, report }: Registration) {
  const { configurations, episodes, steps } = report;
  return html`<div class="stack report">
    <p><span class="chip good">accepted</span> <code>${envId}</code>, ${kind}, revision ${revision}.</p>
    <p>The checker played ${counted(episodes, 'episode')} of ${counted(configurations, 'configuration')}, ${counted(steps, 'step')} in all, and found nothing wrong.</p>
    <p class="hint">${
      durable
        ? 'It is stored and will be there after a restart.'
        : 'It is lost when the server stops: the server was started without --data.'
    }</p>
    <p><a class="button primary" href=${formatAddress({ view: 'play', envId })}>Play it</a></p>
  </div>`;
}

/** A part of a text: start and end positions. */
interface TextRange {
  readonly start: number;
  readonly end: number;
}

const SPACE = /\s*/y;
const SCALAR = /"(?:[^"\\]|\\.)*"|[^\s,\]}]+/y;

/**
 * Position of the value that a JSON pointer names, or of its innermost existing parent.
 * @param text valid JSON
 */
export function locate(text: string, pointer: string): TextRange {
  const path = pointer
    .split('/')
    .slice(1)
    .map(token => token.replaceAll('~1', '/').replaceAll('~0', '~'));
  let range = valueAt(text, 0);
  for (const token of path) {
    const inner = member(text, range.start, token);
    if (!inner) break;
    range = inner;
  }
  return range;
}

function member(text: string, start: number, wanted: string): TextRange | undefined {
  for (const { key, value } of members(text, start)) if (key === wanted) return value;
  return undefined;
}

function* members(text: string, start: number): Generator<{ key: string; value: TextRange }> {
  const isObject = text[start] === '{';
  if (!isObject && text[start] !== '[') return;
  let at = skipSpace(text, start + 1);
  for (let index = 0; text[at] !== '}' && text[at] !== ']'; index++) {
    let key = String(index);
    if (isObject) {
      const name = valueAt(text, at);
      key = JSON.parse(text.slice(name.start, name.end));
      at = skipSpace(text, name.end) + ':'.length;
    }
    const value = valueAt(text, at);
    yield { key, value };
    at = skipSpace(text, value.end);
    if (text[at] === ',') at = skipSpace(text, at + 1);
  }
}

function valueAt(text: string, from: number): TextRange {
  const start = skipSpace(text, from);
  if (text[start] !== '{' && text[start] !== '[') {
    SCALAR.lastIndex = start;
    return { start, end: start + (SCALAR.exec(text)?.[0].length ?? 0) };
  }
  let end = start + 1;
  for (const { value } of members(text, start)) end = value.end;
  return { start, end: text.indexOf(text[start] === '{' ? '}' : ']', end) + 1 };
}

function skipSpace(text: string, at: number): number {
  SPACE.lastIndex = at;
  return at + (SPACE.exec(text)?.[0].length ?? 0);
}

/** Moves to the target of a pointer; to the whole text where it is not JSON. */
function revealPointer(area: HTMLTextAreaElement, pointer: string): void {
  const { value: text } = area;
  const isJson = parseJson(text) !== undefined;
  const range = isJson ? locate(text, pointer) : { start: 0, end: text.length };
  selectRange(area, range.start, range.end);
}

/** Moves to a line, counted from 1. */
function revealLine(area: HTMLTextAreaElement, line: number): void {
  const lines = area.value.split('\n');
  const start = lines.slice(0, line - 1).reduce((sum, { length }) => sum + length + 1, 0);
  selectRange(area, start, start + (lines[line - 1]?.length ?? 0));
}
