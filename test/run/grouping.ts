/** Test files that share one process, in the order in which they run. */
export interface Group {
  readonly name: string;
  readonly files: readonly string[];
}

/** What makes a file run in a process to itself: it changes, or waits for, something that the whole process has. */
const PROCESS_WIDE: readonly RegExp[] = [
  /\bprocess\.(env|chdir|on|once|argv|exit|exitCode|kill|stdout|stderr)\b/,
  /child_process|process\.test-data|python\.test-data|walkthrough\.test-data/,
  /\bt\.(capture|intercept|chdir)\(/,
  /\bnew Worker\(|\bglobalThis\b/,
  // Hooks and limits of the root test hold for every file in the process.
  /^t\.(before|beforeEach|afterEach|setTimeout)\(/m,
];

/** Whether a test file, given its source, may run in one process with others. */
export function canShareProcess(source: string): boolean {
  return !PROCESS_WIDE.some(pattern => pattern.test(source));
}

/**
 * Puts the files of a folder two levels deep together, at most `most` to a group; a group of one is a file that runs alone.
 * Folders keep their order, so that the same files always meet in the same process.
 */
export function groupFiles(files: readonly string[], most: number): Group[] {
  const folders = new Map<string, string[]>();
  for (const file of files) {
    const folder = file.split('/').slice(0, -1).slice(0, 2).join('-');
    folders.set(folder, [...(folders.get(folder) ?? []), file]);
  }
  return [...folders].flatMap(([folder, members]) => {
    const count = Math.ceil(members.length / most);
    const size = Math.ceil(members.length / count);
    return Array.from({ length: count }, (_, index) => ({
      name: `${folder}-${index + 1}`,
      files: members.slice(index * size, (index + 1) * size),
    })).filter(group => group.files.length > 0);
  });
}
