import { fill, h } from '../../../../shared/web/element.ts';
import type { Client, Exchange } from '../client/client.ts';
import { copyButton } from './copy-button.ts';

/** What is shown of a reply, in characters. */
const MAX_SHOWN_LENGTH = 20_000;

/** The last request of the visitor with its reply, and the curl line that does the same. */
export function exchangePanel(client: Client): HTMLElement {
  const curl = h('code', {}, 'Nothing was asked yet.');
  const about = h('p', { class: 'fine' });
  const reply = h('pre', {
    class: 'reply',
    tabindex: 0,
    role: 'region',
    'aria-label': 'Reply of the server',
  });
  client.addEventListener('exchange', event => {
    const exchange = (event as CustomEvent<Exchange>).detail;
    const { method, url, status, milliseconds } = exchange;
    curl.textContent = exchange.curl;
    fill(
      about,
      h('span', { class: status < 400 ? 'chip good' : 'chip bad' }, status),
      ` ${method} ${new URL(url).pathname} · ${Math.round(milliseconds)} ms`,
    );
    reply.textContent = readable(exchange.reply ?? '');
  });
  return h(
    'section',
    { class: 'panel exchange', 'aria-labelledby': 'exchange-title' },
    h(
      'div',
      { class: 'panel-head' },
      h('h2', { id: 'exchange-title' }, 'Last exchange'),
      copyButton(curl, 'the curl line'),
    ),
    h('pre', { class: 'curl', tabindex: 0, role: 'region', 'aria-label': 'The same with curl' }, curl),
    about,
    reply,
  );
}

function readable(reply: string): string {
  let text = reply;
  try {
    text = JSON.stringify(JSON.parse(reply), null, 2);
  } catch {
    // Not one JSON value, JSON Lines for example: shown as it came.
  }
  return text.length > MAX_SHOWN_LENGTH
    ? `${text.slice(0, MAX_SHOWN_LENGTH)}\n… ${text.length - MAX_SHOWN_LENGTH} more characters`
    : text;
}
