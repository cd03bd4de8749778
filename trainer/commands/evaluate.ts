import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Agent } from '../rollout/agent.ts';
import { referenceAgent } from '../rollout/reference-agent.ts';
import { openProgress, silentProgress } from '../tracking/progress.ts';
import { latestCheckpoint } from '../training/checkpoint.ts';
import { openPolicy } from '../training/open-policy.ts';
import { openRunFolder } from '../training/run-folder.ts';
import type { RunSettings } from '../training/settings.ts';
import { loadRunSettings, overriddenSettings } from '../training/settings-check.ts';
import { validationPlan } from '../training/settings-derived.ts';
import { playValidation } from '../training/validation.ts';
import { agentRollouts, benchAgent, openWorkbench, type Workbench } from '../training/workbench.ts';
import { type EvaluationRow, evaluationRows, evaluationTable } from './evaluation.ts';
import { stopSignal } from './stop-signal.ts';

export interface EvaluateOptions {
  /** Who plays: `checkpoint`, a checkpoint folder, or a reference policy such as `random` and `optimal`. */
  readonly policy: readonly string[];
  readonly json?: boolean;
  readonly quiet?: boolean;
}

const CHECKPOINT = 'checkpoint';
const RANDOM = 'random';

/**
 * The command `evaluate`: plays the validation levels of a run or a config, greedily and as sampled, and prints success
 * with its confidence interval.
 * @param target a run folder or a config file
 * @returns the exit status
 */
export async function evaluate(
  target: string,
  overrides: readonly string[],
  options: EvaluateOptions,
): Promise<number> {
  const progress = options.quiet ? silentProgress : openProgress(process.stderr);
  const { settings, checkpoint } = readTarget(target, overrides);
  const stop = stopSignal(() => progress.note('stopping'));
  const note = progress.note.bind(progress);
  const rows: EvaluationRow[] = [];
  for (const name of options.policy) {
    const folder = policyFolder(name, target, checkpoint);
    const bench = await openWorkbench(settings, folder, note, stop);
    try {
      const play = async (agent: Agent, mode: string, temperature: number) => {
        note(`${name}: ${settings.validation.episodes} episodes, ${mode}`);
        const plan = { ...validationPlan(settings), temperature };
        const { episodes } = await playValidation(agentRollouts(bench, agent, note), plan, stop);
        rows.push(...evaluationRows(name, mode, episodes));
      };
      if (folder === undefined) {
        checkReference(name, bench);
        await play(referenceAgent({ policy: name, randomCount: 'full' }), 'reference', 0);
      } else {
        const policy = await openPolicy(settings, bench, folder);
        try {
          const { temperature } = settings.validation;
          await play(benchAgent(bench, policy), 'greedy', 0);
          if (temperature > 0)
            await play(benchAgent(bench, policy), `temperature ${temperature}`, temperature);
        } finally {
          await policy.close();
        }
      }
    } finally {
      await bench.close();
    }
  }
  console.log(options.json ? JSON.stringify(rows, null, 1) : evaluationTable(rows));
  return 0;
}

function readTarget(
  target: string,
  overrides: readonly string[],
): { settings: RunSettings; checkpoint?: string } {
  if (!existsSync(target)) {
    throw new Error(`${target} does not exist; evaluate takes a run folder or a config file`);
  }
  if (!statSync(target).isDirectory()) return { settings: loadRunSettings(target, overrides) };
  const { run, settings } = openRunFolder(target);
  return {
    settings: overriddenSettings(settings, overrides, run.config),
    checkpoint: latestCheckpoint(run)?.policy,
  };
}

/** Where the named policy's weights are; undefined for a reference policy, which has none. */
function policyFolder(name: string, target: string, checkpoint: string | undefined): string | undefined {
  if (name === CHECKPOINT) {
    if (checkpoint === undefined) {
      throw new Error(
        `${target} has no checkpoint; give a run folder, or name who plays with --policy random|optimal|<folder>`,
      );
    }
    return checkpoint;
  }
  return existsSync(join(name, 'config.json')) ? name : undefined;
}

function checkReference(name: string, bench: Workbench): void {
  for (const { tag, references } of bench.tags) {
    if (name !== RANDOM && !references.includes(name)) {
      throw new Error(
        `--policy ${name}: no folder with a config.json, and ${tag.environmentId} has no such reference policy; ` +
          `it has ${[RANDOM, ...references.filter(known => known !== RANDOM)].join(', ')}`,
      );
    }
  }
}
