/** Outcome of one test file in the process of its group. */
export interface FileOutcome {
  readonly file: string;
  readonly failed: boolean;
  readonly seconds: number;
}

/** A test of the root: its result, its name and its milliseconds. */
const ROOT_TEST = /^(not )?ok \d+ - (.*?)(?: # .*?(?:time=([\d.]+)ms)?)?$/;

/**
 * Reads the TAP that a group wrote. A line with the file's name follows the tests of each file. A process that ended early
 * lacks those lines: then the first file without one failed, and nothing is said of the files after it.
 */
export function readOutcomes(tap: string, files: readonly string[]): FileOutcome[] {
  const outcomes: FileOutcome[] = [];
  let failed = false;
  let ms = 0;
  for (const line of tap.split('\n')) {
    const test = ROOT_TEST.exec(line);
    if (test === null || outcomes.length === files.length) continue;
    failed ||= test[1] !== undefined;
    ms += Number(test[3] ?? 0);
    if (test[2] !== files[outcomes.length]) continue;
    outcomes.push({ file: test[2], failed, seconds: ms / 1000 });
    failed = false;
    ms = 0;
  }
  if (outcomes.length < files.length)
    outcomes.push({ file: files[outcomes.length], failed: true, seconds: ms / 1000 });
  return outcomes;
}
