import { render } from 'preact';
import { fill, h } from '../../../shared/web/element.ts';
import { html } from '../../../shared/web/html.ts';
import { ThemeButton } from '../../../shared/web/theme.ts';
import { type Address, formatAddress, parseAddress } from './address.ts';
import { Client } from './client/client.ts';
import { connectionBadge, connectionBanner } from './components/connection-badge.ts';
import { tokenBar } from './components/token-bar.ts';
import { PlayView } from './play/play-view.ts';
import { RegisterView } from './register/register-view.ts';
import { WatchView } from './watch/watch-view.ts';

const NAMES: { readonly [view in Address['view']]: string } = {
  play: 'Play',
  watch: 'Watch',
  register: 'Register',
};

const place = (id: string): HTMLElement => document.getElementById(id)!;

const client = new Client();
const announce = (text: string) => {
  place('live').textContent = text;
};
const views = {
  play: new PlayView(client, announce),
  watch: new WatchView(client, request => {
    history.pushState(null, '', formatAddress({ view: 'play', envId: request.envId }));
    turnTo('play');
    views.play.playOn(request);
  }),
  register: new RegisterView(client),
};
let current: Address['view'] | undefined;

/** Puts a view onto the page. */
function turnTo(view: Address['view']): void {
  if (current !== undefined && current !== view) views[current].hide();
  if (current !== view) fill(place('view'), views[view].element);
  current = view;
  document.title = `${NAMES[view]} · ragen`;
  for (const link of Array.from(place('views').querySelectorAll('a'))) {
    if (link.dataset.view === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

function show(first: boolean): void {
  const address = parseAddress(location.hash);
  turnTo(address.view);
  switch (address.view) {
    case 'play':
      views.play.show(address, first);
      break;
    case 'watch':
      views.watch.show(address, first);
      break;
    case 'register':
      views.register.show(address, first);
  }
}

fill(
  place('views'),
  ...Object.entries(NAMES).map(([view, name]) =>
    h('a', { href: formatAddress({ view: view as Address['view'] }), 'data-view': view }, name),
  ),
);
const themePlace = h('span', {});
render(html`<${ThemeButton} />`, themePlace);
place('tools').append(connectionBadge(client.connection), themePlace);
place('notices').append(
  connectionBanner(client.connection),
  tokenBar(client, () => show(true)),
);

place('skip').addEventListener('click', event => {
  event.preventDefault();
  place('view').focus();
});
let wasAway = false;
client.connection.addEventListener('change', () => {
  const { state } = client.connection;
  if (state === 'connected' && wasAway) announce('The server answers again.');
  wasAway = state === 'away';
});
addEventListener('hashchange', () => show(false));
// A page that comes back from the browser's memory has left its session.
addEventListener('pageshow', event => event.persisted && show(true));
show(true);
