import { render } from 'preact';
import { SiteHeader, type SitePage } from '../components/header.ts';
import { html } from '../components/html.ts';
import { PlaySession } from '../player/play-session.ts';
import { type Address, formatAddress, parseAddress } from './address.ts';
import { Client } from './client/client.ts';
import { ConnectionBadge, ConnectionBanner, TokenBar } from './components/notices.ts';
import { EnvironmentsView } from './environments/environments-view.ts';
import { EnvironmentList } from './play/environment-picker.ts';
import { PlayView } from './play/play-view.ts';
import { RegisterView } from './register/register-view.ts';
import { Registrar } from './register/registrar.ts';
import { SessionReplay } from './watch/session-replay.ts';
import { SessionWall } from './watch/session-wall.ts';

const NAMES: { readonly [view in Address['view']]: SitePage } = {
  play: 'Play',
  watch: 'Watch',
  environments: 'Environments',
  register: 'Register',
};

const place = (id: string): HTMLElement => document.getElementById(id)!;
const announce = (text: string) => {
  place('live').textContent = text;
};

const client = new Client();
// State that outlives its view, for when the visitor comes back.
const list = new EnvironmentList(client);
const session = new PlaySession(client);
session.announce = announce;
session.onchange = start => rewriteAddress({ view: 'play', ...start });
const registrar = new Registrar(client);

/** The shown hash. The address bar may already have a newer one: its event comes later. */
let shownHash = '';
let current: Address['view'] | undefined;

/** Updates the address bar, unless the visitor is already on the way elsewhere. */
function rewriteAddress(address: Address): void {
  if (location.hash !== shownHash) return;
  history.replaceState(null, '', formatAddress(address));
  shownHash = location.hash;
}

function viewOf(address: Address) {
  switch (address.view) {
    case 'play':
      return html`<${PlayView} client=${client} session=${session} list=${list} address=${address} />`;
    case 'watch':
      return address.sessionId === undefined
        ? html`<${SessionWall} client=${client} address=${address} onaddress=${rewriteAddress} />`
        : html`<${SessionReplay} key=${address.sessionId} client=${client} sessionId=${address.sessionId} address=${address} />`;
    case 'environments':
      return html`<${EnvironmentsView} client=${client} address=${address} />`;
    case 'register':
      return html`<${RegisterView} client=${client} registrar=${registrar} address=${address} />`;
  }
}

/** @param first true for the page's first view, so that the focus stays where it is */
function show(first: boolean): void {
  shownHash = location.hash;
  const address = parseAddress(shownHash);
  const { view } = address;
  // Before another view is drawn: a visitor who comes back at once begins a new session after this.
  if (current === 'play' && view !== 'play') session.close();
  current = view;
  document.title = `${NAMES[view]} · ragen`;
  const { runs } = document.documentElement.dataset;
  render(
    html`<${SiteHeader} current=${NAMES[view]} server="" runs=${runs}><${ConnectionBadge} connection=${client.connection} /><//>`,
    place('head'),
  );
  render(viewOf(address), place('view'));
  // The player takes the focus itself.
  if (!first && view !== 'play') place('view').querySelector('h1')?.focus({ preventScroll: true });
}

render(
  html`<${ConnectionBanner} connection=${client.connection} /><${TokenBar} client=${client} onchange=${() => show(true)} />`,
  place('notices'),
);
place('skip').addEventListener('click', event => {
  event.preventDefault();
  if (current === 'play') session.focus();
  else place('view').focus();
});
let wasAway = false;
client.connection.addEventListener('change', () => {
  const { state } = client.connection;
  if (state === 'connected' && wasAway) {
    announce('The server answers again.');
    // What could not be shown is asked for again; what is played or written stays as it is.
    if (current === 'play' ? session.store.state.episode === undefined : current !== 'register') show(true);
  }
  wasAway = state === 'away';
});
addEventListener('hashchange', () => {
  scrollTo(0, 0);
  show(false);
});
// Added at the start: browsers ask a page about leaving only where it listened while it loaded.
addEventListener('pagehide', () => session.close());
// A page restored from the browser's memory has left its session.
addEventListener('pageshow', event => event.persisted && show(true));
show(true);
