import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { html } from './html.ts';
import { chooseTheme, followSystem, shownTheme, type Theme } from './theme.ts';

/** The pages of the site, in the order of the header. */
const SITE_PAGES = ['Play', 'Watch', 'Runs', 'Environments', 'Register', 'Docs'] as const;
export type SitePage = (typeof SITE_PAGES)[number];

/** Addresses of the parts of the site; a missing part has no link. */
interface SiteLinks {
  /** Address of the environment server, ending in a slash; `''` on the server's own pages. */
  readonly server?: string;
  /** Address of the pages about training runs. */
  readonly runs?: string;
}

interface SiteHeaderProps extends SiteLinks {
  /** Absent on a page without an entry in the header. */
  readonly current?: SitePage;
  /** Shown at the right, before the theme button. */
  readonly children?: ComponentChildren;
}

/** The address of a page; undefined where its part of the site is missing. */
function pageAddress(page: SitePage, { server, runs }: SiteLinks): string | undefined {
  if (page === 'Runs') return runs;
  if (server === undefined) return undefined;
  return page === 'Docs' ? `${server}docs/` : `${server}#/${page.toLowerCase()}`;
}

/** The header of every page: links to the pages, and the theme. */
export function SiteHeader({ current, children, ...links }: SiteHeaderProps) {
  const pages = SITE_PAGES.flatMap(page => {
    const address = pageAddress(page, links);
    return address === undefined ? [] : [{ page, address }];
  });
  return html`<header class="row page-head">
    <a class="brand" href=${pages[0]?.address ?? '#'}><${Mark} />ragen</a>
    <nav class="tabs" aria-label="Site">
      ${pages.map(
        ({ page, address }) =>
          html`<a key=${page} href=${address} aria-current=${page === current ? 'page' : undefined}>${page}</a>`,
      )}
    </nav>
    <div class="row push tools">${children}<${ThemeButton} /></div>
  </header>`;
}

/** The project's logo, as in `mark.svg`; inline, so that an exported site needs no file for it. */
function Mark() {
  return html`<svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">
    <rect width="32" height="32" rx="8" fill="#17705f" />
    <path
      d="M8 23V9h7.5a4.5 4.5 0 0 1 0 9H8m7 0 5 5"
      fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round"
    />
    <circle cx="24" cy="9.5" r="2.2" fill="#ffd28a" />
  </svg>`;
}

/** A button that names the theme it switches to. */
function ThemeButton() {
  const [theme, show] = useState(shownTheme);
  useEffect(() => followSystem(() => show(shownTheme())), []);
  const next: Theme = theme === 'dark' ? 'light' : 'dark';
  const flip = () => {
    chooseTheme(next);
    show(next);
  };
  return html`<button type="button" class="quiet" title="Switch to the ${next} theme" onClick=${flip}>
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" fill="currentColor"><path d="M8 1v14A7 7 0 0 1 8 1" /><circle cx="8" cy="8" r="6.5" fill="none" stroke="currentColor" /></svg>
    <span class="visually-hidden">${next === 'dark' ? 'Dark theme' : 'Light theme'}</span>
  </button>`;
}
