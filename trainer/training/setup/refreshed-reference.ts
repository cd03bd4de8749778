import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { RunSettings } from '../../config/settings.ts';
import type { Policy, TrainedPolicy } from '../../policy/policy.ts';
import type { RunFolder } from '../run-folder/run-folder.ts';
import type { ReferencePolicy } from './open-policy.ts';

const NAME = /^step-(\d+)$/;

/**
 * The folder of the reference after an iteration: the policy at the start of training, or at the last refresh. It
 * follows from the iteration alone, so a resumed run continues with the same one.
 */
export function referenceFolder(
  run: Pick<RunFolder, 'reference' | 'references'>,
  { policy }: RunSettings,
  step: number,
): string {
  const every = policy.reference_refresh_every;
  const refreshed = every === null ? 0 : step - (step % every);
  return refreshed === 0 ? run.reference : join(run.references, folderName(refreshed));
}

type RefreshableReference = ReferencePolicy & Required<Pick<ReferencePolicy, 'load'>>;

export function isRefreshable(reference: ReferencePolicy): reference is RefreshableReference {
  return reference.load !== undefined;
}

/** A reference that the current policy replaces at a fixed interval of iterations. */
export class RefreshedReference implements ReferencePolicy {
  readonly #reference: RefreshableReference;
  readonly #actor: Pick<TrainedPolicy, 'publish'>;
  readonly #run: Pick<RunFolder, 'references'>;
  readonly #every: number;

  constructor(
    reference: RefreshableReference,
    actor: Pick<TrainedPolicy, 'publish'>,
    run: Pick<RunFolder, 'references'>,
    every: number,
  ) {
    this.#reference = reference;
    this.#actor = actor;
    this.#run = run;
    this.#every = every;
  }

  score(...request: Parameters<Policy['score']>): ReturnType<Policy['score']> {
    return this.#reference.score(...request);
  }

  /**
   * Replaces the reference if the iteration is due. Removes references from before the oldest checkpoint.
   * @param oldest iteration of the oldest checkpoint that a run may resume from
   */
  async refresh(step: number, oldest: number): Promise<void> {
    if (step % this.#every !== 0) return;
    const folder = join(this.#run.references, folderName(step));
    const partial = `${folder}.partial`;
    rmSync(partial, { recursive: true, force: true });
    if (!this.#actor.publish) throw new Error('the policy does not write its weights');
    await this.#actor.publish(partial);
    rmSync(folder, { recursive: true, force: true });
    renameSync(partial, folder);
    await this.#reference.load(folder);
    const needed = oldest - (oldest % this.#every);
    for (const name of existsSync(this.#run.references) ? readdirSync(this.#run.references) : []) {
      const match = NAME.exec(name);
      if (match && Number(match[1]) < needed)
        rmSync(join(this.#run.references, name), { recursive: true, force: true });
    }
  }

  close(): Promise<void> {
    return this.#reference.close();
  }
}

function folderName(step: number): string {
  return `step-${String(step).padStart(6, '0')}`;
}
