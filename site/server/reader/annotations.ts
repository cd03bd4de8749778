import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, open, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Annotations,
  annotationsProblem,
  MAX_ANNOTATIONS_BYTES,
  NO_ANNOTATIONS,
} from '../../../shared/run-folder/annotations.ts';
import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { type FoundRun, readRunJson } from './run-folders.ts';

/** Never an existing file, and never through a link. */
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/** Tags, notes and archive marks of runs: files are read again only when they have changed. */
export class RunAnnotations {
  readonly #known = new Map<string, { readonly changedMs: number; readonly value: Annotations }>();

  async of(run: FoundRun): Promise<Annotations> {
    const { annotatedMs } = run;
    if (annotatedMs === undefined) return NO_ANNOTATIONS;
    const known = this.#known.get(run.id);
    if (known?.changedMs === annotatedMs) return known.value;
    const read = await readRunJson(run, MAX_ANNOTATIONS_BYTES, RUN_FILES.annotations);
    const value = annotationsProblem(read) === undefined ? (read as Annotations) : NO_ANNOTATIONS;
    this.#known.set(run.id, { changedMs: annotatedMs, value });
    return value;
  }

  /**
   * Replaces the annotations of a run.
   * @throws Error of the file system
   */
  async write(run: FoundRun, { tags, note, archived }: Annotations): Promise<void> {
    if (!(await lstat(run.path)).isDirectory())
      throw Object.assign(new Error('no folder'), { code: 'ENOTDIR' });
    const partial = join(run.path, `${RUN_FILES.annotations}.${randomBytes(6).toString('hex')}.partial`);
    const file = await open(partial, NEW_FILE, 0o644);
    try {
      await file.writeFile(`${JSON.stringify({ tags, note, archived })}\n`);
      await file.close();
      await rename(partial, join(run.path, RUN_FILES.annotations));
    } catch (error) {
      await file.close();
      await unlink(partial).catch(() => undefined);
      throw error;
    }
  }

  forget(id: string): void {
    this.#known.delete(id);
  }
}
