import { render } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { SiteHeader } from '../components/header.ts';
import { html } from '../components/html.ts';
import { token } from '../components/request.ts';
import { listen } from '../components/store.ts';
import { type Address, parseAddress } from './address.ts';
import { SourceContext } from './data/hooks.ts';
import { openSource, type Source } from './data/source.ts';
import { focusSearch, TokenForm, useKeys } from './views/parts.ts';
import { Lazy, RunPages } from './views/run-pages.ts';
import { RunsView } from './views/runs-view.ts';

const TITLES: { readonly [view: string]: string } = {
  runs: 'Runs',
  compare: 'Compare',
  leaderboard: 'Leaderboard',
};

function App({ source }: { readonly source: Source }) {
  const [address, setAddress] = useState(() => parseAddress(location.hash));
  const main = useRef<HTMLElement>(null);
  // Registered before a link can be followed.
  useLayoutEffect(() => listen({ hashchange: () => setAddress(parseAddress(location.hash)) }), []);
  const place = `${address.run} ${address.view}`;
  const first = useRef(place);
  useEffect(() => {
    const { run, view } = address;
    document.title = `${run === undefined ? TITLES[view] : `${run}, ${view}`} · ragen`;
    if (first.current === place) return;
    first.current = place;
    // A new page begins at its top, for eyes and screen readers alike.
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [place]);
  const { server } = source.site;
  const [locked, setLocked] = useState(false);
  useLayoutEffect(() => source.locks.addEventListener('locked', () => setLocked(true)), [source]);
  useKeys({ '/': focusSearch });
  return html`<${SourceContext.Provider} value=${source}>
    <a class="button primary visually-hidden skip" href="#main" onClick=${(event: Event) => {
      event.preventDefault();
      main.current?.focus();
    }}>Skip to the content</a>
    <${SiteHeader} current="Runs" server=${server ?? undefined} runs="#/" />
    ${locked && html`<div class="stack tight bar"><p class="hint">${token() === '' ? 'This server wants a token.' : 'This server does not know that token.'}</p><${TokenForm} onToken=${() => location.reload()} /></div>`}
    <main ref=${main} id="main" tabindex="-1">${viewOf(address)}</main>
  <//>`;
}

// The table of runs is shown before the charts and boards of the other pages are loaded.
const compareView = async () => (await import('./views/compare-view.ts')).CompareView;
const leaderboardView = async () => (await import('./views/leaderboard-view.ts')).LeaderboardView;

function viewOf(address: Address) {
  if (address.run !== undefined) return html`<${RunPages} key=${address.run} address=${address} />`;
  switch (address.view) {
    case 'compare':
      return html`<${Lazy} key="compare" load=${compareView} address=${address} />`;
    case 'leaderboard':
      return html`<${Lazy} key="leaderboard" load=${leaderboardView} address=${address} />`;
    default:
      return html`<${RunsView} address=${address} />`;
  }
}

const place = document.getElementById('app')!;
openSource().then(
  source => render(html`<${App} source=${source} />`, place),
  (error: Error) => render(html`<p class="bar warn" role="alert">${error.message}</p>`, place),
);
