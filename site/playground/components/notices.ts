import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { textOf } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { useEvent, useUniqueId } from '../../components/store.ts';
import type { Client, Connection, ConnectionState } from '../client/client.ts';

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

/** A small sign for the state of the connection. */
export function ConnectionBadge({ connection }: ConnectionProps) {
  useEvent(connection, 'change');
  const { state } = connection;
  return html`<p class="connection chip ${WORDS[state].tone}" role="status" data-state=${state}>
    <span>${WORDS[state].short}</span>
  </p>`;
}

/** A line across the page while the server cannot be reached. */
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

/** A field for the token; it appears when the server asks for one and stays while one is in use. */
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
