import { existsSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { BrowserContextOptions, Page } from 'playwright-core';
import type { Test } from 'tap';
import { browser, PATIENCE_MS } from '../../site/playground/browser.test-data.ts';
import { serveHttp } from '../../test/local-server.test-data.ts';
import { collapseMetrics } from '../diagnostics/collapse/collapse-metrics.ts';
import { createDashboard, type DashboardSettings } from './server.ts';

/** A dashboard on a free port; it ends with the test. */
export async function serveDashboard(
  t: Test,
  settings: Partial<DashboardSettings> & { readonly runs: string },
): Promise<string> {
  const app = await createDashboard({ host: '127.0.0.1', allowedHosts: '', ...settings });
  t.teardown(() => app.close());
  return app.listen({ host: '127.0.0.1', port: 0 });
}

/** A page in the browser; what it throws or its policy forbids fails the test. */
export async function openPage(t: Test, url: string, context: BrowserContextOptions = {}): Promise<Page> {
  const opened = await (await browser()).newContext({
    viewport: { width: 1440, height: 900 },
    reducedMotion: 'reduce',
    ...context,
  });
  opened.setDefaultTimeout(PATIENCE_MS);
  const page = await opened.newPage();
  page.on('pageerror', error => t.fail(`the page threw: ${error.message}`));
  page.on('console', message => {
    if (/Content.Security.Policy/i.test(message.text())) t.fail(message.text());
  });
  t.teardown(() => opened.close());
  await page.goto(url);
  return page;
}

const TYPES: { readonly [ending: string]: string } = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
};

/** Any web server: hands out the files of a folder. */
export async function serveFiles(t: Test, folder: string): Promise<string> {
  const { url } = await serveHttp(t, (request, reply) => {
    const path = decodeURIComponent(new URL(request.url!, 'http://x').pathname);
    const file = join(folder, path === '/' ? 'index.html' : path);
    if (!existsSync(file)) return reply.writeHead(404).end();
    reply.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
    reply.end(readFileSync(file));
  });
  return url;
}

/** The metrics of a step that the diagnostics of collapse and of gradients add when all of them are on. */
export function allDiagnostics(): { readonly [name: string]: number } {
  const scores = [Float64Array.of(-1, -2), Float64Array.of(-2, -1)];
  const table = { prompts: [[1], [2]], perToken: scores, perSequence: scores, matchedColumn: [0, 1] };
  const collapse = ['', '_action'].flatMap(part =>
    ['first_turn', 'trajectory'].map(
      turns =>
        collapseMetrics(table, undefined, `collapse${part}_${turns}_sample`, { std_eps: 1, ema_decay: 0.9 })
          .metrics,
    ),
  );
  const components = ['task', 'entropy', 'kl'];
  const measured = [
    ...['sample_count', 'sample_pct', 'group_rv_count', 'zero_std_share', 'task_to_reg'],
    ...['reward_std_mean', 'reward_std_min', 'reward_std_max', ...components],
    ...['per_sample', 'per_token', 'loss', 'share', 'cosine'].flatMap(of =>
      components.map(name => `${of}/${name}`),
    ),
  ];
  const gradients = ['grad_norm', 'grad_norm_prefilter'].flatMap(prefix =>
    ['all', 1, 2, 3, 4, 5, 6].flatMap(bucket =>
      measured.map(name => [`${prefix}/bucket_${bucket}/${name}`, 0.5]),
    ),
  );
  return Object.assign({}, ...collapse, Object.fromEntries(gradients));
}
