import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { attempted } from '../../shared/json.ts';
import { TRAINER } from '../../shared/program.ts';
import { type EpisodeRecord, RUN_FILES } from '../../shared/run-folder/run-files.ts';
import type { EpisodeDigest } from '../../site/compute/episode-digest.ts';
import {
  type EpisodePack,
  type EpisodeSpan,
  type ExportedRun,
  exportedPath,
  exportedRunPath,
} from '../../site/runs/data/exported-source.ts';
import { type Asset, Assets, RUN_PAGES } from '../../site/server/assets.ts';
import { type RunDetail, RunReader } from '../../site/server/reader/run-reader.ts';
import type { SiteAddresses } from '../../site/server/routes.ts';
import type { DashboardSettings } from './server.ts';

/** Most packs of episodes of a run, and uncompressed bytes of a pack: the page reads a pack as a whole. */
const MAX_PACKS = 8;
const MIN_PACK_BYTES = 2 * 1024 * 1024;
const SITE_FILE = 'site.json';

const compressed = promisify(gzip);

export type ExportOptions = Pick<DashboardSettings, 'leaderboard' | 'signed' | 'server'>;

/** Number of files written. */
export interface ExportedFiles {
  readonly files: number;
  readonly bytes: number;
}

/** Writes a file of an export. */
type Write = (path: string, content: string | Buffer) => void;

/**
 * Writes the run pages with all their data as files for any web server: `index.html`, `assets/`, and in `data/` at most
 * nine compressed files a run. It replaces an earlier export in the folder.
 */
export async function exportSite(
  runs: string,
  folder: string,
  { leaderboard, signed, server }: ExportOptions = {},
): Promise<ExportedFiles> {
  if (isExport(folder))
    for (const part of ['assets', 'data']) rmSync(join(folder, part), { recursive: true, force: true });
  const written = { files: 0, bytes: 0 };
  const write: Write = (path, content) => {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
    written.files++;
    written.bytes += Buffer.byteLength(content);
  };
  for (const [path, content] of await exportedAssets()) write(path, content);
  const address = server === undefined ? null : server.replace(/\/?$/, '/');
  const site: SiteAddresses = { server: address, api: null, trainer: TRAINER, exported: true };
  write(SITE_FILE, JSON.stringify(site));
  const reader = new RunReader(runs, leaderboard, signed);
  const table = await reader.runs({ q: 'is:any', settings: 'all' });
  write(exportedPath('runs'), JSON.stringify(table));
  write(exportedPath('run-summary'), JSON.stringify(await reader.summary()));
  write(exportedPath('signed-results'), JSON.stringify(await reader.signedResults({ wait: true })));
  write(exportedPath('leaderboard'), JSON.stringify(await reader.leaderboard()));
  for (const { id } of table.rows) await exportRun(reader, id, write);
  return written;
}

/** True for a folder that an export wrote. */
function isExport(folder: string): boolean {
  const file = join(folder, SITE_FILE);
  if (!existsSync(file)) return false;
  const site = attempted(() => JSON.parse(readFileSync(file, 'utf8')) as Partial<SiteAddresses> | null);
  return site?.exported === true;
}

async function exportRun(reader: RunReader, id: string, write: Write): Promise<void> {
  const found = await reader.find(id);
  const detail = await reader.run(id);
  if (!found || !detail) return;
  const packs = new EpisodePacks(packBytes(found.path, detail));
  const digests: { [file: string]: readonly EpisodeDigest[] } = {};
  const finish = async () => {
    const { number, pack } = packs.take();
    write(exportedRunPath(id, number), await compressed(JSON.stringify(pack)));
  };
  for (const { name } of detail.files) {
    digests[name] = (await reader.episodes(id, name)) ?? [];
    for (const { index } of digests[name]) {
      const reply = await reader.episode(id, name, index);
      if (!reply)
        throw new Error(`${id}, ${name}: episode ${index} is gone: a run in progress; export it again`);
      packs.add(name, index, reply.episode, reply.texts);
      if (packs.isFull) await finish();
    }
  }
  if (!packs.isEmpty) await finish();
  const [metrics, groups] = [await reader.metrics(id), await reader.groups(id)];
  const run: ExportedRun = { detail, metrics: metrics!, groups: groups!, digests, packs: packs.spans };
  write(exportedRunPath(id), await compressed(JSON.stringify(run)));
}

/** Bytes of a pack that give a run at most {@link MAX_PACKS}. */
function packBytes(path: string, { files }: RunDetail): number {
  const sizes = files.map(({ name }) => statSync(join(path, RUN_FILES.trajectories, `${name}.jsonl`)).size);
  const all = sizes.reduce((sum, size) => sum + size, 0);
  return Math.max(MIN_PACK_BYTES, all / (MAX_PACKS - 1));
}

/** Episodes in file order, in packs of about the same size. */
class EpisodePacks {
  readonly #most: number;
  readonly #spans: EpisodeSpan[][] = [];
  #open: EpisodeSpan[] = [];
  #episodes: EpisodeRecord[] = [];
  #texts: { [id: string]: string } = {};
  #bytes = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get isFull(): boolean {
    return this.#bytes >= this.#most && this.#spans.length < MAX_PACKS - 1;
  }

  get isEmpty(): boolean {
    return this.#episodes.length === 0;
  }

  /** Spans of the closed packs. */
  get spans(): readonly (readonly EpisodeSpan[])[] {
    return this.#spans;
  }

  add(file: string, index: number, episode: EpisodeRecord, texts: EpisodePack['texts']): void {
    const last = this.#open.at(-1);
    if (last?.file === file) this.#open[this.#open.length - 1] = { ...last, count: last.count + 1 };
    else this.#open.push({ file, first: index, count: 1 });
    this.#episodes.push(episode);
    Object.assign(this.#texts, texts);
    this.#bytes += JSON.stringify(episode).length;
  }

  /** The open pack; the next one begins empty. */
  take(): { readonly number: number; readonly pack: EpisodePack } {
    const pack = { episodes: this.#episodes, texts: this.#texts };
    this.#spans.push(this.#open);
    this.#open = [];
    this.#episodes = [];
    this.#texts = {};
    this.#bytes = 0;
    return { number: this.#spans.length - 1, pack };
  }
}

const PAGE = 'site/runs/page.html';
/** Imports of scripts; web servers know the ending `.js`, but not `.ts`. */
const IMPORT = /((?:\bfrom|\bimport)\s*(?:\(\s*)?["'])([./][^"']+)(["'])/g;
const LINK = /\b(?:href|src)="assets\/([^"]+)"/g;
/** An export has bundles only, without the modules that a source map refers to. */
const SOURCE_MAP = /^\/\/# sourceMappingURL=.*\n/m;
const ADDRESS = /\burl\(["']?([^"')]+)["']?\)/g;

/** Files of the run pages for a plain web server: the page, and everything it ever loads. */
async function exportedAssets(): Promise<Map<string, string | Buffer>> {
  const assets = new Assets(RUN_PAGES);
  const files = new Map<string, string | Buffer>();
  const seen = new Set([PAGE]);
  for (const path of seen) {
    const asset = await assets.find(path);
    // Pages of other parts of the site, which an export lacks.
    if (!asset) continue;
    for (const reference of referencesIn(asset, path)) seen.add(reference);
    files.set(targetOf(path), exported(asset));
  }
  return files;
}

const targetOf = (path: string): string =>
  path === PAGE ? 'index.html' : posix.join('assets', path.replace(/\.ts$/, '.js'));

/** Paths of the files that a file names. */
function referencesIn({ body, contentType }: Asset, path: string): string[] {
  if (typeof body !== 'string') return [];
  if (contentType.startsWith('text/html')) return [...body.matchAll(LINK)].map(([, found]) => found);
  const pattern = contentType.startsWith('text/css') ? ADDRESS : IMPORT;
  const group = pattern === ADDRESS ? 1 : 2;
  return [...body.matchAll(pattern)].map(match => posix.join(posix.dirname(path), match[group]));
}

function exported({ body, contentType }: Asset): string | Buffer {
  if (typeof body !== 'string') return body;
  if (contentType.startsWith('text/html')) return body.replaceAll('.ts"', '.js"');
  if (!contentType.startsWith('text/javascript')) return body;
  return body
    .replace(SOURCE_MAP, '')
    .replace(
      IMPORT,
      (_, start: string, name: string, end: string) => `${start}${name.replace(/\.ts$/, '.js')}${end}`,
    );
}
