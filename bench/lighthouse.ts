/**
 * Lighthouse's scores of the pages, on a phone and on a desktop: `npm run bench:lighthouse [-- --views play,run --form mobile]`.
 * Fails where a score is below 95, and names the audits that cost points. Performance is the best of `--rounds 3`, since
 * other work on the machine only lowers it. Where Lighthouse fails to record, it tries twice more and says so. Needs chromium (`--chromium /usr/bin/chromium`); npx fetches Lighthouse.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createApp } from '../env-server/app.ts';
import { writeSampleRun } from '../site/server/sample-runs.test-data.ts';
import { positiveInteger, scriptFlags } from './flags.ts';

const LIGHTHOUSE = 'lighthouse@13.5.0';
const LEAST = 95;
/** Attempts at a report: on a busy machine Lighthouse sometimes loses its browser or sees no page. */
const ATTEMPTS = 3;
const FORMS = ['mobile', 'desktop'] as const;
const CATEGORIES = ['performance', 'accessibility', 'best-practices', 'seo'] as const;
const VIEWS: { readonly [name: string]: string } = {
  landing: '',
  environments: '#/environments',
  play: '#/play/FrozenLake-v0?seed=7',
  shop: '#/play/TextShop-v0?seed=7',
  watch: '#/watch',
  docs: 'docs/',
  components: 'site/components',
  runs: 'runs/',
  run: 'runs/#/run/lake-1',
  episode: 'runs/#/run/lake-1/episode?file=train-000030&index=1',
  settings: 'runs/#/run/lake-1/settings',
  compare: 'runs/#/compare?runs=lake-1,lake-2',
  leaderboard: 'runs/#/leaderboard',
};

const { values } = scriptFlags(import.meta.filename, {
  options: {
    views: { type: 'string', default: Object.keys(VIEWS).join() },
    form: { type: 'string', default: FORMS.join() },
    rounds: { type: 'string', default: '3' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
  },
});
const rounds = positiveInteger('rounds', values.rounds);
const run = promisify(execFile);

/** The read part of Lighthouse's report. */
interface Report {
  readonly categories: {
    readonly [name: string]: {
      readonly score: number | null;
      readonly auditRefs: readonly { readonly id: string; readonly weight: number }[];
    };
  };
  readonly audits: {
    readonly [id: string]: { readonly score: number | null; readonly displayValue?: string };
  };
  readonly runtimeError?: { readonly code: string; readonly message: string };
}

/** Lighthouse made no report that counts. */
class NotRecorded extends Error {}

const folder = mkdtempSync(join(tmpdir(), 'ragen-bench-lighthouse-'));

/** One attempt at a report. */
async function recorded(url: string, form: string): Promise<Report> {
  const file = join(folder, 'report.json');
  rmSync(file, { force: true });
  const flags = [
    '--output=json',
    `--output-path=${file}`,
    '--quiet',
    ...(form === 'desktop' ? ['--preset=desktop'] : []),
  ];
  try {
    await run('npx', ['--yes', LIGHTHOUSE, url, ...flags, '--chrome-flags=--no-sandbox --headless=new'], {
      env: { ...process.env, CHROME_PATH: values.chromium },
    });
  } catch (error) {
    if (!existsSync(file)) throw new NotRecorded(failureOf(error));
  }
  const report: Report = JSON.parse(readFileSync(file, 'utf8'));
  if (report.runtimeError) throw new NotRecorded(report.runtimeError.code);
  const [unscored] = CATEGORIES.filter(category => report.categories[category].score === null);
  if (unscored) throw new NotRecorded(`no score of ${unscored}`);
  return report;
}

/** The code by which Lighthouse names its failure, else the end of what it printed. */
function failureOf(error: unknown): string {
  const { stderr = '', message } = error as Error & { readonly stderr?: string };
  return /\b[A-Z]+(?:_[A-Z]+)+\b/.exec(stderr)?.[0] ?? (stderr.trim().slice(-300) || message);
}

async function reportOf(url: string, form: string): Promise<Report> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await recorded(url, form);
    } catch (error) {
      if (!(error instanceof NotRecorded)) throw error;
      console.log(`  ${url}, ${form}: attempt ${attempt} of ${ATTEMPTS} not recorded, ${error.message}`);
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

const scoreOf = (report: Report, category: string) =>
  Math.round(100 * (report.categories[category].score ?? 0));

/** The report with the best performance; undefined where none was made, so that the other views still have theirs. */
async function bestOf(url: string, form: string): Promise<Report | undefined> {
  let best: Report | undefined;
  try {
    for (let round = 0; round < rounds; round++) {
      const report = await reportOf(url, form);
      if (!best || scoreOf(report, 'performance') > scoreOf(best, 'performance')) best = report;
      if (scoreOf(best, 'performance') >= LEAST) break;
    }
  } catch (error) {
    if (!(error instanceof NotRecorded)) throw error;
  }
  return best;
}

/** Audits of a category that have weight and not all points. */
function costlyAudits({ categories, audits }: Report, category: string): string {
  return categories[category].auditRefs
    .filter(({ id, weight }) => weight > 0 && (audits[id].score ?? 1) < 0.95)
    .map(({ id }) => `${id} ${audits[id].displayValue ?? ''}`.trim())
    .join(', ');
}

const app = await createApp({ logLevel: 'silent', runs: folder });
let isGood = true;
try {
  writeSampleRun(folder, 'lake-1');
  writeSampleRun(folder, 'lake-2', { seed: 2 });
  const origin = await app.server.listen({ host: '127.0.0.1', port: 0 });
  for (const seed of [1, 2, 3]) {
    const body = JSON.stringify({ env_id: 'Sokoban-v0', seed, ttl_s: 3600 });
    await fetch(`${origin}/v1/sessions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
  }
  console.log(`${LIGHTHOUSE}, load ${loadavg()[0].toFixed(1)} on ${availableParallelism()} cores`);
  console.log(`view, form: ${CATEGORIES.join(', ')}`);
  for (const view of values.views.split(',')) {
    for (const form of values.form.split(',')) {
      const best = await bestOf(`${origin}/${VIEWS[view]}`, form);
      if (!best) {
        isGood = false;
        continue;
      }
      const scores = CATEGORIES.map(category => scoreOf(best, category));
      console.log(`${view}, ${form}: ${scores.join(', ')}`);
      for (const [i, category] of CATEGORIES.entries()) {
        if (scores[i] >= LEAST) continue;
        isGood = false;
        console.log(`  ${category}: ${costlyAudits(best, category)}`);
      }
    }
  }
} finally {
  await app.server.close();
  rmSync(folder, { recursive: true, force: true });
}
process.exitCode = isGood ? 0 : 1;
