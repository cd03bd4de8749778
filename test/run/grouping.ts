/** Test files that share one process, in the order in which they run. */
export interface Group {
  readonly name: string;
  readonly files: readonly string[];
}

/** Limits of one group; a file that takes longer than `seconds` is a group by itself. */
export interface GroupLimits {
  readonly files: number;
  readonly seconds: number;
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

/** True if a test file, given its source, may run in one process with others. */
export function canShareProcess(source: string): boolean {
  return !PROCESS_WIDE.some(pattern => pattern.test(source));
}

/**
 * Puts the files of a folder two levels deep together, within the limits. What small folders of one parent hold fills a
 * group together. The longest group comes first, so that no core waits for it at the end. The same files and times give
 * the same groups.
 * @param secondsOf how long a file takes
 */
export function groupFiles(
  files: readonly string[],
  limits: GroupLimits,
  secondsOf: (file: string) => number,
): Group[] {
  const folders = new Map<string, string[]>();
  for (const file of files) add(folders, file.split('/').slice(0, -1).slice(0, 2).join('/'), [file]);
  const large = new Map<string, string[]>();
  const small = new Map<string, string[]>();
  for (const [folder, members] of folders) {
    if (members.length > limits.files / 2) large.set(folder, members);
    else add(small, folder.split('/')[0], members);
  }
  const groups = [...large, ...[...small].map(([parent, files]) => [`${parent}-others`, files] as const)];
  return groups
    .flatMap(([folder, members]) => split(folder.replace('/', '-'), members, limits, secondsOf))
    .map(group => ({ group, seconds: total(group.files, secondsOf) }))
    .sort((a, b) => b.seconds - a.seconds)
    .map(({ group }) => group);
}

function add(lists: Map<string, string[]>, key: string, members: readonly string[]): void {
  lists.set(key, [...(lists.get(key) ?? []), ...members]);
}

function total(files: readonly string[], secondsOf: (file: string) => number): number {
  return files.reduce((sum, file) => sum + secondsOf(file), 0);
}

/** As few groups as hold the files, about as long each: the longest file goes to the shortest group that has room. */
function split(
  name: string,
  files: readonly string[],
  limits: GroupLimits,
  secondsOf: (file: string) => number,
): Group[] {
  const count = Math.max(
    Math.ceil(files.length / limits.files),
    Math.ceil(total(files, secondsOf) / limits.seconds),
  );
  const groups = Array.from({ length: count }, () => ({ seconds: 0, files: new Set<string>() }));
  for (const file of [...files].sort((a, b) => secondsOf(b) - secondsOf(a))) {
    const open = groups.filter(group => group.files.size < limits.files);
    const shortest = open.reduce((least, group) => (group.seconds < least.seconds ? group : least));
    shortest.files.add(file);
    shortest.seconds += secondsOf(file);
  }
  return groups
    .filter(group => group.files.size > 0)
    .map((group, index) => ({
      name: `${name}-${index + 1}`,
      files: files.filter(file => group.files.has(file)),
    }));
}
