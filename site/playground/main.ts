import { render } from 'preact';
import { SiteHeader, type SitePage } from '../components/header.ts';
import { html } from '../components/html.ts';
import { type Address, formatAddress, parseAddress } from './address.ts';
import { Client } from './client/client.ts';
import { connectionBadge, connectionBanner } from './components/connection-badge.ts';
import { tokenBar } from './components/token-bar.ts';
import { EnvironmentsView } from './environments/environments-view.ts';
import { PlayView } from './play/play-view.ts';
import { RegisterView } from './register/register-view.ts';
import { WatchView } from './watch/watch-view.ts';

const NAMES: { readonly [view in Address['view']]: SitePage } = {
  play: 'Play',
  watch: 'Watch',
  environments: 'Environments',
  register: 'Register',
};

const place = (id: string): HTMLElement => document.getElementById(id)!;

const client = new Client();
const announce = (text: string) => {
  place('live').textContent = text;
};
/** The hash that is shown. A newer one may be in the address bar already: its event comes later. */
let shownHash = '';
const views = {
  play: new PlayView(client, { announce, onaddress: rewriteAddress }),
  watch: new WatchView(client, rewriteAddress),
  environments: new EnvironmentsView(client),
  register: new RegisterView(client),
};
let current: Address['view'] | undefined;
const badge = connectionBadge(client.connection);

/** Puts a view onto the page. */
function turnTo(view: Address['view']): void {
  if (current !== undefined && current !== view) views[current].hide();
  if (current !== view) place('view').replaceChildren(views[view].element);
  current = view;
  document.title = `${NAMES[view]} · ragen`;
  const { runs } = document.documentElement.dataset;
  render(html`<${SiteHeader} current=${NAMES[view]} server="" runs=${runs} />`, place('head'));
  place('head').querySelector('.tools')?.prepend(badge);
}

/** Says in the address bar what is shown, unless the visitor is already on the way to something else. */
function rewriteAddress(address: Address): void {
  if (location.hash !== shownHash) return;
  history.replaceState(null, '', formatAddress(address));
  shownHash = location.hash;
}

function show(first: boolean): void {
  shownHash = location.hash;
  const address = parseAddress(shownHash);
  turnTo(address.view);
  switch (address.view) {
    case 'play':
      views.play.show(address, first);
      break;
    case 'watch':
      views.watch.show(address, first);
      break;
    case 'environments':
      views.environments.show(address, first);
      break;
    case 'register':
      views.register.show(address, first);
  }
}

place('notices').append(
  connectionBanner(client.connection),
  tokenBar(client, () => show(true)),
);
place('skip').addEventListener('click', event => {
  event.preventDefault();
  if (current === 'play') views.play.focus();
  else place('view').focus();
});
let wasAway = false;
client.connection.addEventListener('change', () => {
  const { state } = client.connection;
  if (state === 'connected' && wasAway) announce('The server answers again.');
  wasAway = state === 'away';
});
addEventListener('hashchange', () => {
  scrollTo(0, 0);
  show(false);
});
// A page that comes back from the browser's memory has left its session.
addEventListener('pageshow', event => event.persisted && show(true));
show(true);
