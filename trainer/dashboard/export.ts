import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { TRAINER } from '../../shared/program.ts';
import { exportedPath } from '../../site/runs/data/exported-source.ts';
import type { SiteAddresses } from '../../site/server/addresses.ts';
import { Assets, RUN_PAGES } from '../../site/server/assets.ts';
import { RunReader } from '../../site/server/reader/run-reader.ts';

const PAGE = 'site/runs';
/** Imports of scripts; web servers know the ending `.js`, but not `.ts`. */
const IMPORT_OF_SOURCE = /((?:\bfrom|\bimport)\s*(?:\(\s*)?["'][^"']+)\.ts(["'])/g;

export interface ExportOptions {
  readonly leaderboard?: string;
  /** Address of an environment server that the pages link to. */
  readonly server?: string;
}

/**
 * Writes the pages about runs and all that they show as files, which any web server can serve: `index.html`, `assets/`, and the
 * data as JSON in `data/`.
 */
export async function exportSite(
  runs: string,
  folder: string,
  { leaderboard, server }: ExportOptions = {},
): Promise<{ readonly files: number; readonly bytes: number }> {
  const written = { files: 0, bytes: 0 };
  const write = (path: string, content: string) => {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
    written.files++;
    written.bytes += Buffer.byteLength(content);
  };
  const assets = new Assets(RUN_PAGES);
  for (const path of assets.paths) {
    const { body } = await assets.find(path)!;
    const target = path === `${PAGE}/page.html` ? 'index.html' : join('assets', path.replace(/\.ts$/, '.js'));
    write(
      target,
      path.endsWith('.html') ? body.replaceAll('.ts"', '.js"') : body.replaceAll(IMPORT_OF_SOURCE, '$1.js$2'),
    );
  }
  const address = server === undefined ? null : server.replace(/\/?$/, '/');
  const site: SiteAddresses = { server: address, api: null, trainer: TRAINER, exported: true };
  write('site.json', JSON.stringify(site));
  await exportData(new RunReader(runs, leaderboard), (name, query, value) =>
    write(exportedPath(name, query), JSON.stringify(value)),
  );
  return written;
}

type Write = (
  name: string,
  query: { readonly id?: string; readonly file?: string; readonly index?: number },
  value: unknown,
) => void;

async function exportData(reader: RunReader, write: Write): Promise<void> {
  const runs = await reader.runs({ q: 'is:any', settings: 'all' });
  write('runs', {}, runs);
  write('run-summary', {}, await reader.summary());
  write('leaderboard', {}, await reader.leaderboard());
  for (const { id } of runs.rows) {
    const detail = await reader.run(id);
    if (!detail) continue;
    write('run', { id }, detail);
    write('metrics', { id }, await reader.metrics(id));
    write('groups', { id }, await reader.groups(id));
    for (const { name } of detail.files) {
      const episodes = (await reader.episodes(id, name)) ?? [];
      write('episodes', { id, file: name }, episodes);
      for (const { index } of episodes) {
        write('episode', { id, file: name, index }, await reader.episode(id, name, index));
      }
    }
  }
}
