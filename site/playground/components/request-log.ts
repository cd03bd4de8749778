import { copyButton } from '../../components/copy-button.ts';
import { fill, h } from '../../components/element.ts';
import { withUnit } from '../../components/with-unit.ts';
import type { Client, Exchange } from '../client/client.ts';
import { codeLine, LANGUAGES, type Language, preamble } from '../client/code-lines.ts';

/** Characters shown of a reply. */
const MAX_SHOWN_LENGTH = 20_000;
/** Requests that are remembered. */
const MAX_REQUESTS = 200;

/** Everything that the visitor had done, as a program in the language of choice, with the last reply. */
export function requestLog(client: Client): HTMLElement {
  const done: Exchange[] = [];
  let language: Language = 'curl';
  const code = h('code', {});
  const about = h('p', { class: 'fine' }, 'The requests of this page appear here.');
  const reply = h('pre', {
    class: 'reply',
    tabindex: 0,
    role: 'region',
    'aria-label': 'Reply of the server',
  });
  const scroller = h(
    'pre',
    { class: 'code-log', tabindex: 0, role: 'region', 'aria-label': 'What was done, as a program' },
    code,
  );
  const write = () => {
    const { origin } = location;
    const authorized = done.some(exchange => exchange.request.authorized);
    const lines = done.map(exchange => codeLine(language, exchange.request, origin));
    code.textContent = [preamble(language, origin, authorized), ...lines].filter(Boolean).join('\n');
    scroller.scrollTop = scroller.scrollHeight;
  };
  client.addEventListener('exchange', event => {
    const exchange = (event as CustomEvent<Exchange>).detail;
    const { method, url } = exchange.request;
    done.push(exchange);
    if (done.length > MAX_REQUESTS) done.shift();
    fill(
      about,
      h('span', { class: exchange.status < 400 ? 'chip good' : 'chip bad' }, exchange.status),
      ` ${method} ${new URL(url).pathname} · ${withUnit(Math.round(exchange.milliseconds), 'ms')}`,
    );
    reply.textContent = readable(exchange.reply);
    write();
  });
  const tabs = LANGUAGES.map(name =>
    h(
      'button',
      {
        type: 'button',
        class: 'quiet small',
        'aria-pressed': String(name === language),
        onclick: () => {
          language = name;
          for (const tab of tabs) tab.setAttribute('aria-pressed', String(tab.textContent === name));
          write();
        },
      },
      name,
    ),
  );
  return h(
    'section',
    { class: 'panel exchange', 'aria-labelledby': 'exchange-title' },
    h(
      'div',
      { class: 'panel-head' },
      h('h2', { id: 'exchange-title' }, 'What was done'),
      copyButton(code, 'the program'),
    ),
    h('div', { class: 'seg languages', role: 'group', 'aria-label': 'Language' }, ...tabs),
    scroller,
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
