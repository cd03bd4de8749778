import { readFileSync } from 'node:fs';

/**
 * Resident memory of a process on Linux, in bytes: now (`VmRSS`), or the most that it had (`VmHWM`; unlike `maxRSS` of
 * `process.resourceUsage()` without what the process had that started it). NaN of one that has ended.
 */
export function residentBytes(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const [, kibibytes] = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status) ?? [];
  return Number(kibibytes) * 1024;
}
