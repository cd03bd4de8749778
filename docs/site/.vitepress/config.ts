/** The site of this repository's pages (`npm run docs:site`): the same Markdown files, with search and a table of contents. */
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { join, posix, relative } from 'node:path';
import { defineConfig, type MarkdownOptions } from 'vitepress';
import { anchorOf } from '../../generator/markdown.ts';

const ROOT = join(import.meta.dirname, '../../..');
/** Address of the repository in a browser, such as `https://github.com/me/ragen/blob/main`: links to files lead there. */
const REPOSITORY = process.env.RAGEN_REPOSITORY_URL;
const SECTIONS = [
  ['Start', ['README.md', 'FEATURES.md', 'CHANGELOG.md']],
  ['Tutorial', 'docs/tutorial'],
  ['How-to', 'docs/how-to'],
  ['Reference', 'docs/reference'],
  ['Explanation', 'docs/explanation'],
  ['Environments', ['docs/environments.md', 'docs/environments']],
  ['Results', 'docs/results'],
  ['Contribute', ['CONTRIBUTING.md', 'SECURITY.md', 'CODE_OF_CONDUCT.md']],
] as const;

/** The page's first heading, without its markup. */
function titleOf(path: string): string {
  const heading = /^# (.+)$/m.exec(readFileSync(join(ROOT, path), 'utf8'))?.[1] ?? path;
  return heading.replaceAll('`', '');
}

/** A page's path on the site: a folder's README is its index. */
const sitePath = (path: string) => path.replace(/(^|\/)README\.md$/, '$1index.md');

function sidebar() {
  return SECTIONS.map(([text, places]) => {
    const paths = [places].flat().flatMap(place => {
      return place.endsWith('.md') ? [place] : globSync(`${place}/*.md`, { cwd: ROOT }).sort();
    });
    const items = paths.map(path => ({
      text: titleOf(path),
      link: `/${sitePath(path).replace(/\.md$/, '')}`,
    }));
    return { text, items, collapsed: text !== 'Start' && text !== 'Tutorial' };
  });
}

/**
 * Where a link of a page leads on the site: pages are found under their site path. A file that is not a page is found in the
 * repository where its address is known; else the link becomes plain text.
 * @throws Error naming the page, where the file does not exist
 */
function siteLink(page: string, href: string): string | undefined {
  if (/^(?:[a-z][a-z0-9+.-]*:|#|\/\/)/i.test(href)) return href;
  const [path, anchor] = href.split('#', 2);
  const target = posix.normalize(posix.join(posix.dirname(page), decodeURI(path)));
  const file = join(ROOT, target);
  if (!existsSync(file)) throw new Error(`${page} links to ${href}, which does not exist`);
  const readme = statSync(file).isDirectory() ? posix.join(target, 'README.md') : target;
  if (!readme.endsWith('.md') || !existsSync(join(ROOT, readme))) {
    return REPOSITORY && `${REPOSITORY}/${target}`;
  }
  const to = posix.relative(posix.dirname(page), sitePath(readme));
  return `${to.startsWith('.') ? to : `./${to}`}${anchor ? `#${anchor}` : ''}`;
}

/** Applies {@link siteLink} before VitePress reads the links. */
const links: NonNullable<MarkdownOptions['config']> = markdown => {
  markdown.core.ruler.push('ragen-links', state => {
    const page = relative(ROOT, state.env.realPath ?? state.env.path).replaceAll('\\', '/');
    for (const { children } of state.tokens) {
      for (const [index, token] of (children ?? []).entries()) {
        if (token.type !== 'link_open') continue;
        const to = siteLink(page, token.attrGet('href') ?? '');
        if (to !== undefined) token.attrSet('href', to);
        else {
          const close = children?.findIndex((other, at) => at > index && other.type === 'link_close') ?? -1;
          token.tag = 'span';
          token.attrs = null;
          token.type = 'span_open';
          if (children && close >= 0) children[close].tag = 'span';
        }
      }
    }
  });
};

// biome-ignore lint/style/noDefaultExport: VitePress reads the default export
export default defineConfig({
  title: 'ragen',
  description: 'Reinforcement learning for language-model agents: an environment server and a trainer.',
  base: process.env.RAGEN_DOCS_BASE ?? '/',
  srcDir: ROOT,
  srcExclude: [
    '**/node_modules/**',
    'test/**',
    'docs/site/**',
    '.github/**',
    'runs/**',
    '**/dist/**',
    '**/.*/**',
  ],
  outDir: join(import.meta.dirname, '../dist'),
  cacheDir: join(import.meta.dirname, '../node_modules/.cache/vitepress'),
  rewrites: path => sitePath(path),
  cleanUrls: true,
  // Addresses of servers that a reader starts.
  ignoreDeadLinks: 'localhostLinks',
  // The pages lie outside this folder, where Vue is installed.
  vite: {
    resolve: {
      alias: [
        {
          find: /^vue(?=$|\/server-renderer$)/,
          replacement: join(import.meta.dirname, '../node_modules/vue'),
        },
      ],
    },
    build: { chunkSizeWarningLimit: 4096 },
  },
  markdown: { config: links, anchor: { slugify: anchorOf } },
  themeConfig: {
    search: { provider: 'local' },
    sidebar: sidebar(),
    outline: [2, 3],
    ...(REPOSITORY && { socialLinks: [{ icon: 'github', link: REPOSITORY.replace(/\/blob\/.*/, '') }] }),
  },
});
