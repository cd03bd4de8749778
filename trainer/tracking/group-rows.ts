import { existsSync } from 'node:fs';
import type { GroupsRow } from '../../shared/run-folder/run-files.ts';
import { appendJsonLine, reopenJsonLines, writeJsonLines } from './jsonlines.ts';

/** Appends the groups of an iteration to `groups.jsonl`. */
export function appendGroupsRow(file: string, row: GroupsRow): void {
  appendJsonLine(file, row);
}

/** Removes the rows of iterations after `step`, which a run that goes on from there plays again. */
export function dropGroupRows(file: string, step: number): void {
  if (!existsSync(file)) return;
  const rows = reopenJsonLines(file) as GroupsRow[];
  writeJsonLines(
    file,
    rows.filter(row => row.step <= step),
  );
}
