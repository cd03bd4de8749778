import { readFileSync } from 'node:fs';

/** A file of golden vectors, for tests. */
export function golden<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`./golden/${name}`, import.meta.url), 'utf8')) as T;
}
