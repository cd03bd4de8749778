import type { Latencies } from '../floods/probe.ts';
import { median } from '../measuring.ts';
import { judged, worstNetP99 } from './floods.ts';
import { inMb, memoryFault, memoryText, peakFault } from './memory.ts';
import type { StageReport } from './stage.ts';

/** Violations that are shown of one stage. */
const MAX_SHOWN = 10;

/** The median of the medians, and the largest 99th percentiles. */
function inMs(latencies: readonly Latencies[] | undefined): string {
  if (!latencies?.length) return '';
  const most = (key: 'p99' | 'netP99') => Math.max(...latencies.map(one => one[key])).toFixed(1);
  return `${median(latencies.map(({ p50 }) => p50)).toFixed(1)} / ${most('p99')} / ${most('netP99')}`;
}

/** Checks of a stage, each with its limit and its measurement. */
function checksOf(report: StageReport): (readonly [string, string, string, string])[] {
  const { settings, violations, floods, memory, leaked } = report;
  const stage = `${settings.replicas} replicas`;
  const seen = floods?.seen ?? [];
  const worst = Math.max(...seen.map(worstNetP99));
  const of = (verdict: string) => seen.filter(flood => judged(flood, settings.limitMs) === verdict);
  const [slow, busy] = [of('slow').length, of('busy')];
  const load = Math.max(...busy.map(flood => flood.load)).toFixed(0);
  const grown = memory && memoryFault(memory, settings.replicas) !== undefined;
  const high = floods && peakFault(floods.peakBytes, settings.replicas) !== undefined;
  const wrong = violations.length - slow - (grown ? 1 : 0) - (high ? 1 : 0) - (leaked ? 1 : 0);
  const verdict = (measured: boolean, holds: boolean) =>
    measured ? (holds ? 'holds' : 'FAILS') : 'not measured';
  return [
    [`${stage}: nothing lost, doubled or answered wrongly`, '0', String(wrong), verdict(true, wrong === 0)],
    [
      `${stage}: another client's net p99 in each flood`,
      `${settings.limitMs} ms`,
      seen.length > 0 ? `${worst.toFixed(1)} ms` : '',
      slow === 0 && busy.length > 0
        ? `unknown in ${busy.length} of ${seen.length}: other programs kept the machine busy, load ${load}`
        : verdict(seen.length > 0, slow === 0),
    ],
    [
      `${stage}: memory is flat`,
      'in use and of the processes, see bench/soak/memory.ts',
      memory ? memoryText(memory) : '',
      verdict(memory !== undefined, !grown),
    ],
    [
      `${stage}: memory during the floods is bounded`,
      'of the processes, see bench/soak/memory.ts',
      floods ? inMb(floods.peakBytes) : '',
      verdict(floods !== undefined, !high),
    ],
    [
      `${stage}: nothing left open`,
      '0',
      leaked === undefined ? '' : String(leaked),
      verdict(leaked !== undefined, !leaked),
    ],
  ];
}

/** The table of a soak, its verdicts, and what was wrong. */
export function reportText(reports: readonly StageReport[]): string {
  const columns = reports.map(
    ({ settings, cut }) => `${settings.replicas} replicas${cut ? ' (cut short)' : ''}`,
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
    ['memory before → after the floods', ({ memory }) => (memory ? memoryText(memory) : '')],
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
  lines.push('', '| must hold | demanded | measured | verdict |', '|---|---|---|---|');
  for (const report of reports) {
    for (const check of checksOf(report)) lines.push(`| ${check.join(' | ')} |`);
  }
  for (const { settings, violations } of reports) {
    for (const violation of violations.slice(0, MAX_SHOWN)) {
      lines.push(`${settings.replicas} replicas: ${violation}`);
    }
    const more = violations.length - MAX_SHOWN;
    if (more > 0) lines.push(`${settings.replicas} replicas: and ${more} more`);
  }
  return lines.join('\n');
}
