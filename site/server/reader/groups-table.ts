import { type GroupsRow, RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { GrowingFile } from './growing-file.ts';
import type { FoundRun } from './run-folders.ts';

/** Iterations and groups that are kept; of more, iterations are thinned out evenly. */
const MAX_ROWS = 400;
const MAX_GROUPS = 200_000;

/** The groups of a run's iterations, read once and from then on only what was appended. */
export class GroupsTable {
  readonly #file: GrowingFile;
  #rows: GroupsRow[] = [];
  #last: GroupsRow | undefined;
  #groups = 0;
  /** One of this many rows is kept. */
  #every = 1;
  #seen = 0;

  constructor(run: FoundRun) {
    this.#file = new GrowingFile(run, RUN_FILES.groups, {
      add: row => this.#add(row as unknown as GroupsRow),
      clear: () => this.#clear(),
    });
  }

  /** @param after only iterations with a later step */
  async rows(after = Number.NEGATIVE_INFINITY): Promise<readonly GroupsRow[]> {
    await this.#file.refresh();
    const isKept = this.#last === undefined || this.#rows.at(-1) === this.#last;
    const rows = isKept ? this.#rows : [...this.#rows, this.#last!];
    return rows.filter(({ step }) => step > after);
  }

  #add(row: GroupsRow): void {
    if (typeof row.step !== 'number' || !Array.isArray(row.groups)) return;
    this.#last = row;
    if (this.#seen++ % this.#every !== 0) return;
    this.#rows.push(row);
    this.#groups += row.groups.length;
    while (this.#rows.length > MAX_ROWS || (this.#groups > MAX_GROUPS && this.#rows.length > 1)) {
      this.#rows = this.#rows.filter((_, i) => i % 2 === 0);
      this.#groups = this.#rows.reduce((sum, { groups }) => sum + groups.length, 0);
      this.#every *= 2;
    }
  }

  #clear(): void {
    this.#rows = [];
    this.#last = undefined;
    this.#groups = 0;
    this.#every = 1;
    this.#seen = 0;
  }
}
