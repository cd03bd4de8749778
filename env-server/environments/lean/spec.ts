import type { EnvironmentSpec } from '../core/environment.ts';
import { charactersOf, LINES } from '../core/spaces.ts';
import type { Verdict } from './backend.ts';
import { configSchema, MAX_STEPS, optionsSchema } from './config.ts';

export const MAX_TACTIC_LENGTH = 2000;
export const MAX_OBSERVATION_LENGTH = 1_000_000;
/** Characters of theorems and tactics of the built-in checker. */
export const CHARSET = charactersOf(LINES, 'ℕℤ∀∃∧∨¬→↔⊢≤≥≠×∣⟨⟩λ↦·←▸∎αβγ₁₂₃⁻¹²³…–’“”');

export type Version = 0 | 1;

/** Rewards that add up for a step: for the step itself, for the tactic's verdict, and for the end of the episode. */
export interface Rewards extends Readonly<Record<Verdict['status'], number>> {
  readonly step: number;
  readonly proof: number;
  /** `max_steps` ends the episode. */
  readonly cap: number;
}

/**
 * By version. RAGEN pays for accepted tactics, so that one that does nothing, repeated, returns more than a proof. Since
 * version 1 every tactic costs the same: of two episodes the one with a proof returns more, of two proofs the shorter one.
 */
export const REWARDS: { readonly [version in Version]: Rewards } = {
  0: { step: -0.1, accepted: 1, proved: 1, rejected: -1, timeout: -1, proof: 10, cap: -2 },
  1: { step: -0.1, accepted: 0, proved: 0, rejected: 0, timeout: 0, proof: 10, cap: 0 },
};

const RULES: { readonly [version in Version]: string } = {
  0: `Rewards are RAGEN’s, and add up: ${REWARDS[0].step} for every step, +${REWARDS[0].accepted} for an accepted tactic, ${REWARDS[0].rejected} for a rejected one, +${REWARDS[0].proof} when the theorem is proved, ${REWARDS[0].timeout} when Lean gives no answer in time, ${REWARDS[0].cap} more when \`max_steps\` ends the episode. Accepted tactics that lead nowhere pay, too: an episode that repeats one returns more than a proof. Train on \`Lean-v1\`.`,
  1: `Every step costs ${-REWARDS[1].step}, and the proof pays ${REWARDS[1].proof}. An accepted tactic pays nothing by itself: it may lead nowhere. \`Lean-v0\` keeps RAGEN’s rule, which pays for it.`,
};

/** Specification of Lean-v0 or Lean-v1. */
export function specOf(version: Version): EnvironmentSpec {
  const { step, proof, cap, ...verdicts } = REWARDS[version];
  return {
    id: `Lean-v${version}`,
    title: version === 0 ? 'Theorem proving in Lean, RAGEN’s rewards' : 'Theorem proving in Lean',
    description: [
      'A theorem is proved tactic by tactic. Each action is one tactic, checked behind the accepted ones; a rejected one is not kept.',
      '',
      `${RULES[version]} An accepted tactic is a valid action, any other is not.`,
      '',
      '`lean` checks proofs where it is installed: a process for each tactic that reads its library and nothing else, with limits of time and memory. For Mathlib a REPL process or a Kimina Lean server is faster. A proof may use the axioms `propext`, `Classical.choice` and `Quot.sound` only.',
      '',
      'Without Lean, the built-in checker plays propositional logic only: intro, exact, refine, apply, assumption, constructor, left, right, exfalso, contradiction, trivial, rcases, obtain, cases, have, by_contra, by_cases, rfl, clear. It accepts less than Lean and nothing false. `info` has `checker`, `status` and `messages`; `condition` of `GET /v1/envs/Lean-v1` says why Lean is not used. The operator sets `RAGEN_LEAN`, `LEAN_PATH` (folders of libraries) and the other `RAGEN_LEAN_…` settings.',
    ].join('\n'),
    tags: ['theorem proving', 'mathematics', 'text'],
    configSchema,
    optionsSchema,
    presets: { logic: { topic: 'logic' } },
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: { type: 'Text', minLength: 1, maxLength: MAX_TACTIC_LENGTH, charset: CHARSET },
    observationFormats: ['text', 'structured'],
    rewardRange: [step + Math.min(...Object.values(verdicts)) + cap, step + verdicts.proved + proof],
    knownOptimum: {
      success: 1,
      source: 'every generated theorem comes with a proof; reference policy `oracle`',
    },
    maxEpisodeSteps: MAX_STEPS,
    ends: { proved: 'Proved the theorem' },
    exampleAction: 'intro h',
    history: HISTORY.slice(0, version + 1),
  };
}

const HISTORY = [
  { version: 0, change: 'First version.' },
  { version: 1, change: 'Accepted and rejected tactics cost the same; only the proof pays.' },
];
