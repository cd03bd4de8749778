import { fill, h } from '../../components/element.ts';
import type { Connection, ConnectionState } from '../client/connection.ts';

interface Words {
  readonly tone: string;
  readonly short: string;
  readonly long: string;
}

const WORDS: { readonly [state in ConnectionState]: Words } = {
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

/** A small sign that says whether the server answers. */
export function connectionBadge(connection: Connection): HTMLElement {
  const text = h('span', {});
  const badge = h('p', { class: 'connection', role: 'status' }, text);
  const show = () => {
    const { tone, short } = WORDS[connection.state];
    badge.className = `connection chip ${tone}`;
    badge.dataset.state = connection.state;
    text.textContent = short;
  };
  connection.addEventListener('change', show);
  show();
  return badge;
}

/** A line across the page while there is no use in asking the server. */
export function connectionBanner(connection: Connection): HTMLElement {
  const banner = h('div', { class: 'banner bar warn', role: 'alert', hidden: true });
  connection.addEventListener('change', () => {
    const { long } = WORDS[connection.state];
    banner.hidden = long === '';
    fill(banner, long && h('p', {}, long));
  });
  return banner;
}
