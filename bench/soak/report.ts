import type { Latencies } from '../floods/probe.ts';
import { median } from '../median.ts';
import { inMb } from './memory.ts';
import type { StageReport } from './stage.ts';

/** Violations that are shown of one stage. */
const MAX_SHOWN = 10;

/** The median of the medians, and the largest 99th percentiles. */
function inMs(latencies: readonly Latencies[] | undefined): string {
  if (!latencies?.length) return '';
  const most = (key: 'p99' | 'netP99') => Math.max(...latencies.map(one => one[key])).toFixed(1);
  return `${median(latencies.map(({ p50 }) => p50)).toFixed(1)} / ${most('p99')} / ${most('netP99')}`;
}

/** The table of a soak, and what was wrong. */
export function reportText(reports: readonly StageReport[]): string {
  const columns = reports.map(
    ({ settings, cut }) => `${settings.workers} workers${cut ? ' (cut short)' : ''}`,
  );
  const rows: readonly (readonly [string, (report: StageReport) => string])[] = [
    ['seconds', ({ seconds }) => seconds.toFixed(0)],
    ['clients', ({ settings }) => String(settings.clients)],
    ['steps', ({ counters }) => String(counters.steps)],
    ['steps/s', ({ counters, seconds }) => (counters.steps / seconds).toFixed(0)],
    ['episodes the same in the server’s record', ({ counters }) => String(counters.verified)],
    ['episodes the same when played again', ({ counters }) => String(counters.replayed)],
    ['connections cut', ({ drops }) => String(drops)],
    ['clients that died', ({ deaths }) => String(deaths)],
    ['requests asked again', ({ counters }) => String(counters.retries)],
    ['sessions that expired before they were used again', ({ counters }) => String(counters.expired)],
    [
      'problems, by code',
      ({ counters }) => [...counters.problems].map(([code, n]) => `${code} ${n}`).join(', '),
    ],
    ['memory, warm → later', ({ rssBytes }) => (rssBytes ? rssBytes.map(inMb).join(' → ') : '')],
    ['memory, most during floods', ({ floods }) => (floods ? inMb(floods.peakBytes) : '')],
    [
      '/livez during floods, p50 / p99 / net p99 ms',
      ({ floods }) => inMs(floods?.seen.map(({ livez }) => livez)),
    ],
    [
      'step during floods, p50 / p99 / net p99 ms',
      ({ floods }) => inMs(floods?.seen.map(({ step }) => step)),
    ],
    ['left open at the end', ({ leaked }) => (leaked === undefined ? '' : String(leaked))],
    ['**violations**', ({ violations }) => String(violations.length)],
  ];
  const lines = [
    `| | ${columns.join(' | ')} |`,
    `|---|${columns.map(() => '---|').join('')}`,
    ...rows.map(([name, value]) => `| ${name} | ${reports.map(value).join(' | ')} |`),
  ];
  for (const { settings, violations } of reports) {
    for (const violation of violations.slice(0, MAX_SHOWN)) {
      lines.push(`${settings.workers} workers: ${violation}`);
    }
    const more = violations.length - MAX_SHOWN;
    if (more > 0) lines.push(`${settings.workers} workers: and ${more} more`);
  }
  return lines.join('\n');
}
