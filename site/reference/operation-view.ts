import { useRef, useState } from 'preact/hooks';
import { CopyButton } from '../components/buttons.ts';
import { jsonText } from '../components/fields.ts';
import { html } from '../components/html.ts';
import { useUniqueId } from '../components/store.ts';
import { readableReply, withUnit } from '../components/text.ts';
import { curlLine } from '../playground/client/client.ts';
import { type OpenApi, type Operation, type Parameter, SchemaView, sampleOf, Text } from './schema-view.ts';

const JSON_TYPE = 'application/json';
const TONES: { readonly [method: string]: string } = {
  get: 'live',
  post: 'good',
  put: 'warn',
  delete: 'bad',
};

interface Reply {
  readonly status: number;
  readonly milliseconds: number;
  readonly text: string;
  /** Address of a picture. */
  readonly picture?: string;
}

export interface OperationProps {
  readonly document: OpenApi;
  readonly path: string;
  readonly method: string;
  readonly operation: Operation;
  readonly token: string;
  /** Values of path parameters by name, shared by all operations, so that a session is named once. */
  readonly names: { readonly [name: string]: string };
  readonly onName: (name: string, value: string) => void;
  readonly isOpen: boolean;
  readonly onToggle: (isOpen: boolean) => void;
}

/** An operation as a line; its input, a form to try it and its replies once it is open. */
export function OperationView(props: OperationProps) {
  const { path, method, operation, isOpen, onToggle } = props;
  return html`<details class="card operation" id=${operation.operationId} open=${isOpen}
    onToggle=${(event: Event) => onToggle((event.currentTarget as HTMLDetailsElement).open)}>
    <summary class="row" style="width:auto"><span class="chip ${TONES[method]}" style="min-width:4.75rem;text-align:center">${method.toUpperCase()}</span><code>${path}</code> <span>${operation.summary}</span></summary>
    ${isOpen && html`<${Opened} ...${props} />`}</details>`;
}

function Opened({ document, path, method, operation, token, names, onName }: OperationProps) {
  const { parameters = [], requestBody, responses, description } = operation;
  const { schema, examples = {} } = requestBody?.content[JSON_TYPE] ?? {};
  const bodies = Object.entries(examples).map(([name, { value }]) => [name, value] as const);
  const [body, write] = useState(() => schema && jsonText(bodies[0]?.[1] ?? sampleOf(schema, document)));
  const [values, setValues] = useState<{ readonly [name: string]: string }>({});
  const [reply, show] = useState<Reply | string>();
  const code = useRef<HTMLElement>(null);
  const fieldValue = ({ name, in: place }: Parameter) => (place === 'path' ? names : values)[name] ?? '';
  const change = (parameter: Parameter, value: string) =>
    parameter.in === 'path'
      ? onName(parameter.name, value)
      : setValues({ ...values, [parameter.name]: value });
  const given = (place: Parameter['in']) =>
    parameters.flatMap(parameter => {
      const value = fieldValue(parameter);
      return parameter.in === place && value !== '' ? [[parameter.name, value] as const] : [];
    });
  const filled = given('path').reduce(
    (filled, [name, value]) => filled.replace(`{${name}}`, encodeURIComponent(value)),
    path,
  );
  const query = new URLSearchParams(given('query').map(pair => [...pair])).toString();
  const url = new URL(`..${filled}${query && `?${query}`}`, location.href).href;
  const request = {
    method: method.toUpperCase(),
    url,
    body,
    authorized: token !== '',
    headers: Object.fromEntries(given('header')),
  };
  const send = async (event: Event) => {
    event.preventDefault();
    const sent = await answerTo(request, token);
    if (typeof sent !== 'string') for (const [name, value] of namesIn(sent.text)) onName(name, value);
    show(sent);
  };
  const [[status, success]] = Object.entries(responses);
  const result = success.content?.[JSON_TYPE]?.schema;
  return html`${description && html`<${Text} text=${description} />`}
    <div class="tiles" style="--tile: 30rem"><form class="stack" onSubmit=${send}>
      ${parameters.map(parameter => html`<${ParameterField} key=${parameter.name} parameter=${parameter} value=${fieldValue(parameter)} onValue=${(value: string) => change(parameter, value)} />`)}
      ${bodies.length > 1 && html`<label class="field"><span>Example</span><select onChange=${(event: Event) => write(jsonText(bodies[(event.currentTarget as HTMLSelectElement).selectedIndex][1]))}>${bodies.map(([name]) => html`<option key=${name}>${name}</option>`)}</select></label>`}
      ${schema && html`<label class="field"><span>Body</span><textarea class="code" spellcheck=${false} value=${body} onInput=${(event: Event) => write((event.currentTarget as HTMLTextAreaElement).value)}></textarea></label>`}
      <div class="row apart"><button class="primary">Send</button><${CopyButton} source=${code} what="the command" /></div>
      <pre tabindex="0" role="region" aria-label="Command for ${operation.operationId}"><code ref=${code}>${curlLine(request)}</code></pre>
      <div class="stack" role="status">${reply !== undefined && html`<${ReplyView} name=${operation.operationId} reply=${reply} />`}</div></form>
      <div class="stack">${schema && html`<section class="stack tight"><h3>Body</h3><${SchemaView} schema=${schema} document=${document} /></section>`}
        <section class="stack tight"><h3>Reply ${status}</h3>${
          result
            ? html`<${SchemaView} schema=${result} document=${document} />`
            : html`<p>${Object.keys(success.content ?? {}).join(', ') || success.description}</p>`
        }</section>
        <section class="stack tight"><h3>Failure</h3><${Text} text=${responses.default.description} /></section></div></div>`;
}

interface ParameterFieldProps {
  readonly parameter: Parameter;
  readonly value: string;
  readonly onValue: (value: string) => void;
}

function ParameterField({ parameter, value, onValue }: ParameterFieldProps) {
  const id = useUniqueId();
  const { name, in: place, required, description, schema } = parameter;
  const write = (event: Event) => onValue((event.currentTarget as HTMLInputElement).value);
  const common = { id, value, required, onInput: write, 'aria-describedby': `${id}-hint` };
  return html`<div class="field">
    <label for=${id}><code>${name}</code> <span class="fine">${place}${required && ', required'}</span></label>
    ${
      schema.enum
        ? html`<select ...${common}><option value="">–</option>${schema.enum.map(choice => html`<option key=${choice}>${choice}</option>`)}</select>`
        : html`<input ...${common} autocomplete="off" spellcheck=${false} />`
    }
    <p class="hint" id="${id}-hint">${description}</p></div>`;
}

function ReplyView({ name, reply }: { readonly name: string; readonly reply: Reply | string }) {
  if (typeof reply === 'string') return html`<p class="note bad">${reply}</p>`;
  const { status, milliseconds, text, picture } = reply;
  return html`<p class="row"><span class="chip ${status < 400 ? 'good' : 'bad'}">${status}</span>
      <span class="fine">${withUnit(Math.round(milliseconds), 'ms')}</span></p>
    ${picture && html`<img src=${picture} alt="The reply" onLoad=${() => URL.revokeObjectURL(picture)} />`}
    ${text !== '' && html`<pre class="reply" tabindex="0" role="region" aria-label="Reply to ${name}">${readableReply(text)}</pre>`}`;
}

/** The reply to a request; a sentence where there is none. */
async function answerTo(
  {
    method,
    url,
    body,
    headers,
  }: { method: string; url: string; body?: string; headers: { [name: string]: string } },
  token: string,
): Promise<Reply | string> {
  const started = performance.now();
  try {
    const response = await fetch(url, {
      method,
      body,
      cache: 'no-store',
      headers: {
        ...headers,
        ...(body !== undefined && { 'content-type': JSON_TYPE }),
        ...(token !== '' && { authorization: `Bearer ${token}` }),
      },
    });
    const isPicture = response.headers.get('content-type')?.startsWith('image/');
    const picture = isPicture ? URL.createObjectURL(await response.blob()) : undefined;
    const text = isPicture ? '' : await response.text();
    return { status: response.status, milliseconds: performance.now() - started, text, picture };
  } catch (error) {
    return `The request was not sent, or the server does not answer: ${(error as Error).message}`;
  }
}

/** Names in a reply that paths of other operations use. */
function namesIn(text: string): [name: string, value: string][] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return [];
  }
  const sessions = (value as { sessions?: unknown })?.sessions;
  return Object.entries(Object((Array.isArray(sessions) && sessions[0]) || value)).filter(
    (entry): entry is [string, string] => /^(session|env)_id$/.test(entry[0]) && typeof entry[1] === 'string',
  );
}
