import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import { useEvent, useUniqueId } from '../../components/store.ts';
import { withUnit } from '../../components/with-unit.ts';
import { type Client, RequestFailed } from '../client/client.ts';
import type { Connection, ConnectionState } from '../client/connection.ts';
import type { Violation } from '../client/wire.ts';
import { textOf } from './fields.ts';

const WORDS: { readonly [state in ConnectionState]: { tone: string; short: string; long: string } } = {
  connected: { tone: 'good', short: 'connected', long: '' },
  draining: {
    tone: 'warn',
    short: 'shutting down',
    long: 'The server is shutting down: it opens no more sessions.',
  },
  away: {
    tone: 'bad',
    short: 'no answer',
    long: 'The server does not answer. This page tries again every two seconds.',
  },
};

interface ConnectionProps {
  readonly connection: Connection;
}

/** A small sign that says whether the server answers. */
export function ConnectionBadge({ connection }: ConnectionProps) {
  useEvent(connection, 'change');
  const { state } = connection;
  return html`<p class="connection chip ${WORDS[state].tone}" role="status" data-state=${state}>
    <span>${WORDS[state].short}</span>
  </p>`;
}

/** A line across the page while there is no use in asking the server. */
export function ConnectionBanner({ connection }: ConnectionProps) {
  useEvent(connection, 'change');
  const { long } = WORDS[connection.state];
  return html`<div class="banner bar warn" role="alert" hidden=${long === ''}>${long && html`<p>${long}</p>`}</div>`;
}

const KEPT = 'Kept in this tab until it is closed.';

interface TokenBarProps {
  readonly client: Client;
  /** Called after the token has changed. */
  readonly onchange: () => void;
}

/** A field for the token; it comes up when the server asks for one and stays while one is in use. */
export function TokenBar({ client, onchange }: TokenBarProps) {
  const id = useUniqueId();
  const field = useRef<HTMLInputElement>(null);
  const [text, write] = useState(client.token);
  const [hint, say] = useState(KEPT);
  const [isShown, show] = useState(client.token !== '');
  useLayoutEffect(() => {
    const ask = () => {
      show(true);
      say(client.token === '' ? 'This server wants a token.' : 'This server does not know that token.');
    };
    client.addEventListener('unauthorized', ask);
    return () => client.removeEventListener('unauthorized', ask);
  }, [client]);
  useEffect(() => {
    if (isShown && document.activeElement === document.body && client.token === '') field.current?.focus();
  }, [isShown, hint]);
  const use = (token: string) => {
    client.token = token;
    write(token);
    say(token === '' ? 'Forgotten.' : KEPT);
    onchange();
  };
  return html`<form class="row bar token-bar" aria-label="Token" hidden=${!isShown} onSubmit=${(
    event: Event,
  ) => {
    event.preventDefault();
    use(text.trim());
  }}>
    <span class="pair"><label for=${id}>Token</label>
      <input id=${id} ref=${field} type="password" autocomplete="off" value=${text} aria-describedby="${id}-hint"
        onInput=${(event: Event) => write(textOf(event))} /></span>
    <button type="submit" class="primary">Use</button>
    <button type="button" onClick=${() => use('')}>Forget</button>
    <p class="hint" id="${id}-hint">${hint}</p>
  </form>`;
}

/** Advice for this page, in place of details from the server that name its routes. */
const PAGE_ADVICE: { readonly [code: string]: string } = {
  environment_exists:
    'An environment has this id already. Press Replace to put your definition in its place, or choose another id.',
  builtin_environment: 'This id belongs to a built-in environment. Choose another id for yours.',
  environment_in_use:
    'Sessions of this environment are open. Wait until they end (Watch shows them), then press the button again.',
};

/** Line of a script, as the checker names it. */
export const LINE = /line (\d+)/;

interface ProblemNoteProps {
  /** An error; undefined while there is none. */
  readonly problem: unknown;
  /** Leads to the place of a violation; without it their pointers are only named. */
  readonly reveal?: (violation: Violation) => void;
  /** A way out, after the report. */
  readonly advice?: string;
}

/** Full report of an error. */
export function ProblemNote({ problem, reveal, advice }: ProblemNoteProps) {
  const place = useRef<HTMLDivElement>(null);
  const isShown = problem !== undefined;
  useLayoutEffect(() => {
    if (isShown) place.current?.scrollIntoView({ block: 'nearest' });
  }, [isShown]);
  if (!isShown) return null;
  return html`<div ref=${place} class="note bad problem" role="alert">
    ${
      problem instanceof RequestFailed
        ? report(problem, reveal)
        : html`<p class="title">${problem instanceof Error ? problem.message : String(problem)}</p>`
    }
    ${advice !== undefined && html`<p>${advice}</p>`}
  </div>`;
}

function report({ problem }: RequestFailed, reveal: ProblemNoteProps['reveal']) {
  const { title, status, code, detail, errors = [], trace_id: trace, retry_after_s: wait } = problem;
  const items = errors.flatMap(violation => {
    const isRepeated = detail.includes(violation.detail);
    if (isRepeated && !reveal) return [];
    const pointer = code === 'check_failed' ? undefined : violation.pointer || '/';
    const place = LINE.exec(violation.detail)?.[0] ?? pointer;
    const link = reveal
      ? html`<button type="button" class="link" onClick=${() => reveal(violation)}>${place}</button>`
      : html`<code>${place}</code>`;
    const text = isRepeated ? '' : ` ${violation.detail}`;
    return place === undefined && text === '' ? [] : [html`<li>${place !== undefined && link}${text}</li>`];
  });
  return html`<p class="title">${title}</p>
    <p>${(code !== undefined && PAGE_ADVICE[code]) || detail}</p>
    ${items.length > 0 && html`<ul>${items}</ul>`}
    ${wait !== undefined && html`<p>Try again in ${withUnit(wait, 's')}.</p>`}
    <p class="fine">${status}${code ? ` ${code}` : ''}${trace ? ` · trace ${trace}` : ''}</p>`;
}
