/** Test files that share one process, in the order in which they run. */
export interface Group {
  readonly name: string;
  readonly files: readonly string[];
}

/**
 * What makes a file run in a process to itself: it changes something of the whole process outside of its tests. What a
 * test changes and puts back is no harm, as tests run one after the other; `together.test-data.ts` checks that it is back.
 */
const PROCESS_WIDE: readonly RegExp[] = [
  // At the start of a line stands what the file does when it is loaded.
  /^(Object\.assign\()?process\.(env|chdir|on|once|argv|exit|exitCode|stdout|stderr)\b/m,
  /^setFlagsFromString\(/m,
  // Hooks of the root test hold for every file in the process.
  /^t\.(before|beforeEach|afterEach)\(/m,
];

/** Whether a test file, given its source, may run in one process with others. */
export function canShareProcess(source: string): boolean {
  return !PROCESS_WIDE.some(pattern => pattern.test(source));
}

/**
 * Puts the files of a folder two levels deep together, at most `most` to a group. What small folders of one parent hold
 * fills a group together. Folders keep their order, so that the same files always meet in the same process.
 */
export function groupFiles(files: readonly string[], most: number): Group[] {
  const folders = new Map<string, string[]>();
  for (const file of files) add(folders, file.split('/').slice(0, -1).slice(0, 2).join('/'), [file]);
  const large = new Map<string, string[]>();
  const small = new Map<string, string[]>();
  for (const [folder, members] of folders) {
    if (members.length > most / 2) large.set(folder, members);
    else add(small, folder.split('/')[0], members);
  }
  const groups = [...large, ...[...small].map(([parent, files]) => [`${parent}-others`, files] as const)];
  return groups.flatMap(([folder, members]) => split(folder.replace('/', '-'), members, most));
}

function add(lists: Map<string, string[]>, key: string, members: readonly string[]): void {
  lists.set(key, [...(lists.get(key) ?? []), ...members]);
}

/** As few groups as hold the files, about as many files in each. */
function split(name: string, files: readonly string[], most: number): Group[] {
  const count = Math.ceil(files.length / most);
  const size = Math.ceil(files.length / count);
  return Array.from({ length: count }, (_, index) => ({
    name: `${name}-${index + 1}`,
    files: files.slice(index * size, (index + 1) * size),
  })).filter(group => group.files.length > 0);
}
