import { inScheduledSlices, type Sliced } from '../../core/slices.ts';
import type { Backend, Theorem, Verdict } from '../backend.ts';
import { LeanError } from './parser.ts';
import { type Goal, readStatement, showGoal } from './statement.ts';
import { applyTactic } from './tactics.ts';

/** Goals shown to the player. */
const SHOWN_GOALS = 5;

/**
 * A checker of proofs in propositional logic, in the syntax of Lean 4, for use where no Lean is installed. It accepts less
 * than Lean does and nothing that is false.
 */
export const builtinBackend: Backend = {
  check: (theorem, tactics) => inScheduledSlices(checkProof(theorem, tactics)),
};

function* checkProof({ statement }: Theorem, tactics: readonly string[]): Sliced<Verdict> {
  let goals: Goal[] = [readStatement(statement)];
  for (const tactic of tactics) {
    yield;
    try {
      goals = applyTactic(goals, tactic);
    } catch (error) {
      if (error instanceof LeanError) return { status: 'rejected', messages: [error.message] };
      throw error;
    }
  }
  if (goals.length === 0) return { status: 'proved', messages: ['no goals'] };
  const shown = goals.slice(0, SHOWN_GOALS).map(showGoal);
  const more = goals.length > SHOWN_GOALS ? [`and ${goals.length - SHOWN_GOALS} more`] : [];
  return { status: 'accepted', messages: [`unsolved goals: ${goals.length}`, ...shown, ...more] };
}
