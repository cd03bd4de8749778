import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';

const SITE = join(import.meta.dirname, 'site');
const DIST = join(SITE, 'dist');
const installed = existsSync(join(SITE, 'node_modules/vitepress'));

/** Links of built pages that lead to no page or no heading of the site. */
function brokenLinks(): string[] {
  const pages = new Map(
    globSync('**/*.html', { cwd: DIST }).map(path => [`/${path}`, readFileSync(join(DIST, path), 'utf8')]),
  );
  const broken: string[] = [];
  for (const [path, html] of pages) {
    const main = html.slice(html.indexOf('<main'), html.indexOf('</main>'));
    for (const [, href] of main.matchAll(/<a[^<>]* href="([^"]*)"/g)) {
      if (/^(?:https?|mailto):/.test(href)) continue;
      const { pathname, hash } = new URL(href, `http://site${path}`);
      const file = pathname.endsWith('/')
        ? `${pathname}index.html`
        : `${pathname.replace(/\.html$/, '')}.html`;
      const target = pages.get(file);
      if (target === undefined) broken.push(`${path}: ${href} leads to no page`);
      else if (hash && !target.includes(` id="${decodeURIComponent(hash.slice(1))}"`)) {
        broken.push(`${path}: ${href} leads to no heading`);
      }
    }
  }
  return broken;
}

t.test(
  'the site of the pages builds: every link leads to a page and a heading, and search finds words of a page',
  { skip: !installed && 'VitePress is missing: npm ci --prefix docs/site' },
  async t => {
    execFileSync('npm', ['run', '--silent', 'build'], { cwd: SITE, stdio: ['ignore', 'ignore', 'inherit'] });
    t.ok(existsSync(join(DIST, 'docs/how-to/serve.html')));
    t.match(readFileSync(join(DIST, 'index.html'), 'utf8'), /<h1[^<>]*>ragen/);
    t.same(brokenLinks(), []);
    const index = globSync('assets/**/@localSearchIndex*.js', { cwd: DIST });
    t.equal(index.length, 1);
    t.match(readFileSync(join(DIST, index[0]), 'utf8'), /frozenlake/i);
  },
);
