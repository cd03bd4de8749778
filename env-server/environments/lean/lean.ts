import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { chooseRecord } from '../core/datasets/records.ts';
import { words } from '../core/datasets/word-problems.ts';
import {
  type Environment,
  type EnvironmentSpec,
  InvalidConfig,
  InvalidOptions,
  type ObservationFormat,
  stepInfo,
  TIME_LIMIT,
  type Transition,
} from '../core/environment.ts';
import { COUNT, charactersOf, choice, dict, LINES, list, type ObservationSpaces } from '../core/spaces.ts';
import type { Backend, Theorem, Verdict } from './backend.ts';
import { builtinBackend } from './builtin/builtin.ts';
import { LeanError, readStatement, showGoal } from './builtin/parser.ts';
import { kiminaBackend } from './kimina.ts';
import { findLean, processBackend } from './process.ts';
import { replBackend } from './repl.ts';
import {
  configSchema,
  drawTheorem,
  type LeanConfig,
  type LeanOptions,
  MAX_STEPS,
  openStatement,
  optionsSchema,
  readTheorem,
} from './theorems.ts';

const MAX_TACTIC_LENGTH = 2000;
const MAX_OBSERVATION_LENGTH = 1_000_000;
/** Characters of theorems and tactics of the built-in checker. */
const CHARSET = charactersOf(LINES, 'ℕℤ∀∃∧∨¬→↔⊢≤≥≠×∣⟨⟩λ↦·←▸∎αβγ₁₂₃⁻¹²³…–’“”');

type Version = 0 | 1;

/** Rewards of a step, which add up: for the step itself, for the tactic's verdict, and for the end of the episode. */
interface Rewards extends Readonly<Record<Verdict['status'], number>> {
  readonly step: number;
  readonly proof: number;
  /** For an end by `max_steps`. */
  readonly cap: number;
}

/**
 * By version. RAGEN pays for accepted tactics, so repeating one that does nothing returns more than a proof. Since
 * version 1 every tactic has the same cost: an episode with a proof returns more than one without, and a shorter proof
 * more than a longer one.
 */
const REWARDS: { readonly [version in Version]: Rewards } = {
  0: { step: -0.1, accepted: 1, proved: 1, rejected: -1, timeout: -1, proof: 10, cap: -2 },
  1: { step: -0.1, accepted: 0, proved: 0, rejected: 0, timeout: 0, proof: 10, cap: 0 },
};

const RULES: { readonly [version in Version]: string } = {
  0: `Rewards are RAGEN’s, and add up: ${REWARDS[0].step} for every step, +${REWARDS[0].accepted} for an accepted tactic, ${REWARDS[0].rejected} for a rejected one, +${REWARDS[0].proof} when the theorem is proved, ${REWARDS[0].timeout} when Lean gives no answer in time, ${REWARDS[0].cap} more when \`max_steps\` ends the episode. Accepted tactics that lead nowhere pay, too: an episode that repeats one returns more than a proof. Train on \`Lean-v1\`.`,
  1: `Every step costs ${-REWARDS[1].step}, and the proof pays ${REWARDS[1].proof}. An accepted tactic pays nothing by itself: it may lead nowhere. \`Lean-v0\` keeps RAGEN’s rule, which pays for it.`,
};

/** Specification of Lean-v0 or Lean-v1. */
function specOf(version: Version): EnvironmentSpec {
  const { step, proof, cap, ...verdicts } = REWARDS[version];
  return {
    id: `Lean-v${version}`,
    title: version === 0 ? 'Theorem proving in Lean, RAGEN’s rewards' : 'Theorem proving in Lean',
    description: [
      'A theorem is proved tactic by tactic. Each action is one tactic. Accepted ones are kept, rejected ones are dropped.',
      '',
      `${RULES[version]} An accepted tactic is a valid action, any other is not. \`info.rewards\` has the parts \`step\`, \`tactic\`, \`proof\` and \`cap\`.`,
      '',
      'Where `lean` is installed, a confined process checks each tactic, with limits of time and memory. For Mathlib a REPL process or a Kimina Lean server is faster. A proof may use the axioms `propext`, `Classical.choice` and `Quot.sound` only.',
      '',
      'Without Lean, the built-in checker plays propositional logic only: intro, exact, refine, apply, assumption, constructor, left, right, exfalso, contradiction, trivial, rcases, obtain, cases, have, by_contra, by_cases, rfl, clear. It accepts less than Lean and nothing false. `info` has `checker`, `status` and `messages`; `condition` of `GET /v1/envs/Lean-v1` says why Lean is not used. The operator sets `RAGEN_LEAN`, `LEAN_PATH` and the other `RAGEN_LEAN_…` settings.',
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

const MAX_TACTICS = 200;
const SHOWN_CHARS = 1500;

/** Checker of proofs; `imitation` in sessions stored by an earlier version. */
type Checker = 'lean' | 'kimina' | 'repl' | 'builtin';

export type LeanState = {
  readonly theorem: {
    readonly name: string;
    readonly informal: string;
    readonly header: string;
    readonly statement: string;
    readonly proof: readonly string[];
  };
  readonly checker: {
    readonly backend: Checker | 'imitation';
    readonly server_url: string;
    readonly timeout_ms: number;
  };
  /** Accepted tactics. */
  readonly tactics: readonly string[];
  readonly steps: number;
  readonly max_steps: number;
  readonly feedback: { readonly status: Verdict['status'] | 'start'; readonly messages: readonly string[] };
  /**
   * The remaining goals, as last reported; empty where none were reported. Absent in sessions stored by an earlier
   * version; `goalsOf` handles them.
   */
  readonly goals?: readonly string[];
};

const SHARED = {
  describe: ({ backend }: LeanConfig) => ({
    instruction: `Prove the theorem in Lean 4, one tactic at a time. Accepted tactics are kept, rejected ones are not.${isBuiltin(backend) ? ` ${BUILTIN_NOTE}` : ''}`,
    actionFormat: 'one tactic, e.g. intro h',
  }),

  observationSpaces({ backend, data }: LeanConfig): ObservationSpaces {
    const of = words([data, isBuiltin(backend) ? undefined : backend], CHARSET);
    const line = of(MAX_OBSERVATION_LENGTH);
    return {
      text: line,
      structured: dict({
        name: line,
        informal: line,
        statement: line,
        tactics: list(of(MAX_TACTIC_LENGTH)),
        steps: COUNT,
        max_steps: COUNT,
        feedback: dict({
          status: choice('start', 'accepted', 'proved', 'rejected', 'timeout'),
          messages: list(line),
        }),
        goals: list(line),
        checker: choice('lean', 'kimina', 'repl', 'builtin'),
      }),
    };
  },

  checkConfig({ backend, server_url, timeout_ms, topic, data }: LeanConfig): void {
    if (isBuiltin(backend) && topic !== 'logic' && data === undefined) throw needsLean(BUILTIN_NOTE);
    if (backend === 'kimina' && server_url === undefined) {
      throw new InvalidConfig('/server_url', 'the backend kimina needs the address of its server');
    }
    if (backend !== 'kimina' && server_url !== undefined) {
      throw new InvalidConfig('/server_url', 'only the backend kimina has a server');
    }
    if (backend === 'kimina') kiminaBackend(server_url ?? '', timeout_ms);
    if (backend === 'repl') replBackend(timeout_ms);
  },

  async reset(config: LeanConfig, rng: Random, options: JsonObject): Promise<LeanState> {
    const { server_url = '', timeout_ms, max_steps } = config;
    const backend = await checkerOf(config);
    const theorem = await chooseTheorem(config, rng, options);
    const goal = backend === 'builtin' ? openGoal(theorem, options) : '';
    return {
      theorem: { ...theorem, header: theorem.header || config.header },
      checker: { backend, server_url, timeout_ms },
      tactics: [],
      steps: 0,
      max_steps,
      feedback: { status: 'start', messages: goal === '' ? [] : [goal] },
      goals: goal === '' ? [] : [goal],
    };
  },

  observe(state: LeanState, format: ObservationFormat): Json {
    const { theorem, tactics, steps, max_steps, feedback } = state;
    const goals = goalsOf(state);
    const checker = nameOf(state);
    const { name, informal, statement } = theorem;
    if (format === 'structured')
      return { name, informal, statement, tactics, steps, max_steps, feedback, goals, checker };
    const lines = informal === '' ? [] : [`In words: ${informal}`];
    if (checker === 'builtin') lines.push(BUILTIN_NOTE);
    lines.push(`Steps: ${steps} of ${max_steps}`, statement);
    lines.push(...tactics.map((tactic, index) => `${index + 1}. ${tactic}`));
    if (feedback.status !== 'start') lines.push(`The last tactic was ${STATUS_WORDS[feedback.status]}.`);
    lines.push(...feedback.messages.map(cut));
    const isOpen = feedback.status === 'rejected' || feedback.status === 'timeout';
    if (isOpen && goals.length > 0) lines.push('Left to prove:', ...goals.map(cut));
    return lines.join('\n');
  },

  async condition() {
    const lean = await findLean();
    return typeof lean === 'string'
      ? { summary: `${BUILTIN_NOTE} ${lean}`, lean: '' }
      : { summary: `proofs are checked by ${lean.program}`, lean: lean.program };
  },

  references: {
    oracle: {
      title: 'The rest of the proof that comes with a generated theorem',
      plan: ({ theorem, tactics, feedback }: LeanState, count: number) => {
        const begun = tactics.every((tactic, index) => tactic === theorem.proof[index]);
        if (feedback.status === 'proved' || !begun) return [];
        return theorem.proof.slice(tactics.length, tactics.length + count);
      },
    },
    random: {
      title: 'Random common tactics',
      plan: (_state: LeanState, count: number, rng: Random) =>
        Array.from({ length: count }, () => rng.choice(COMMON)),
    },
  },
} satisfies Partial<Environment<LeanConfig, LeanState>>;

/** Lean-v1: proofs tactic by tactic. */
export const lean = environmentOf(1);

/** Lean-v0: the same with RAGEN's rewards. */
export const leanV0 = environmentOf(0);

function environmentOf(version: Version): Environment<LeanConfig, LeanState> {
  const rewards = REWARDS[version];
  return { ...SHARED, spec: specOf(version), step: (state, action) => step(rewards, state, action) };
}

const STATUS_WORDS = {
  accepted: 'accepted',
  proved: 'accepted and proves the theorem',
  rejected: 'rejected',
  timeout: 'not checked in time',
} as const;

const COMMON = [
  'intro h',
  'constructor',
  'left',
  'right',
  'assumption',
  'exact h',
  'apply h',
  'exfalso',
  'contradiction',
  'omega',
  'decide',
  'grind',
  'by_cases k : p',
  'cases h',
];

function step(
  rewards: Rewards,
  state: LeanState,
  action: Json,
): Transition<LeanState> | Promise<Transition<LeanState>> {
  if (state.feedback.status === 'proved' || state.steps >= state.max_steps) return over(state);
  const tactic = typeof action === 'string' ? action.trim() : '';
  const refused = refusal(tactic, state);
  if (refused) return judge(rewards, state, tactic, { status: 'rejected', messages: [refused] });
  const verdict = backendOf(state).check(state.theorem, [...state.tactics, tactic]);
  return verdict instanceof Promise
    ? verdict.then(given => judge(rewards, state, tactic, given))
    : judge(rewards, state, tactic, verdict);
}

const BUILTIN_NOTE = 'The built-in checker knows propositional logic only.';

function isBuiltin(backend: LeanConfig['backend']): boolean {
  return backend === 'builtin' || backend === 'imitation';
}

const nameOf = ({ checker }: LeanState): Checker =>
  checker.backend === 'imitation' ? 'builtin' : checker.backend;

/**
 * Checker of an episode's proofs.
 * @throws InvalidConfig where the theorems need Lean, and there is none
 */
async function checkerOf({ backend, topic, data }: LeanConfig): Promise<Checker> {
  if (isBuiltin(backend)) return 'builtin';
  if (backend === 'kimina' || backend === 'repl') return backend;
  const lean = await findLean();
  if (typeof lean !== 'string') return 'lean';
  if (backend === 'lean') throw new InvalidConfig('/backend', lean);
  if (topic !== 'logic' && data === undefined) throw needsLean(lean);
  return 'builtin';
}

function needsLean(why: string): InvalidConfig {
  return new InvalidConfig('/topic', `theorems about arithmetic need Lean: ${why}`);
}

/** Reason to reject a tactic untried, or undefined. */
function refusal(tactic: string, { tactics, checker }: LeanState): string | undefined {
  if (tactic === '') return 'an empty tactic is not allowed';
  if (tactic.length > MAX_TACTIC_LENGTH) return `a tactic has at most ${MAX_TACTIC_LENGTH} characters`;
  if (tactics.length >= MAX_TACTICS) return `a proof has at most ${MAX_TACTICS} tactics`;
  if (!isBuiltin(checker.backend) && FORBIDDEN.test(tactic))
    return 'only tactics are allowed: no sorry, axioms or commands';
  return undefined;
}

/** Words that would end the theorem and begin another command, assume something, or run code. */
const FORBIDDEN =
  /\b(?:namespace|section|end|opaque|structure|inductive|class|export|attribute|variable|universe|mutual|deriving|run_meta|run_elab|d?simproc|infix[lr]?|prefix|postfix|(?:builtin|declare|register)_\w+|sorry\w*|admit|stop|set_option|ofReduce\w*|reduceBool|lcProof|axiom|theorem|lemma|example|def|abbrev|instance|import|macro|macro_rules|syntax|elab|elab_rules|notation|initialize|native_decide|unsafe|run_tac|run_cmd|by_elab|implemented_by)\b|#/;

function openGoal(theorem: Theorem, options: LeanOptions): string {
  try {
    return showGoal(readStatement(theorem.statement));
  } catch (error) {
    if (!(error instanceof LeanError)) throw error;
    const message = `the built-in checker does not understand ${theorem.statement}: ${error.message}`;
    if (options.statement !== undefined) throw new InvalidOptions('/statement', message);
    throw new InvalidConfig('/backend', message);
  }
}

function backendOf({ checker }: LeanState): Backend {
  switch (checker.backend) {
    case 'imitation':
    case 'builtin':
      return builtinBackend;
    case 'lean':
      return processBackend(checker.timeout_ms);
    case 'kimina':
      return kiminaBackend(checker.server_url, checker.timeout_ms);
    case 'repl':
      return replBackend(checker.timeout_ms);
  }
}

/** The remaining goals. A state without goals lists them in its feedback, unless that reports a tactic's fault. */
function goalsOf({ goals, feedback }: Pick<LeanState, 'goals' | 'feedback'>): readonly string[] {
  if (goals) return goals;
  return feedback.status === 'start' || feedback.status === 'accepted' ? feedback.messages : [];
}

function judge(rewards: Rewards, state: LeanState, tactic: string, verdict: Verdict): Transition<LeanState> {
  const { status } = verdict;
  const accepted = status === 'accepted' || status === 'proved';
  const proved = status === 'proved';
  const steps = state.steps + 1;
  const capped = !proved && steps >= state.max_steps;
  const parts = {
    step: rewards.step,
    tactic: rewards[status],
    proof: proved ? rewards.proof : 0,
    cap: capped ? rewards.cap : 0,
  };
  return {
    state: {
      ...state,
      tactics: accepted ? [...state.tactics, tactic] : state.tactics,
      steps,
      feedback: verdict,
      goals: accepted ? verdict.messages : goalsOf(state),
    },
    reward: parts.step + parts.tactic + parts.proof + parts.cap,
    terminated: proved,
    truncated: capped,
    info: stepInfo(proved, accepted, accepted, proved ? 'proved' : capped && TIME_LIMIT, {
      status,
      messages: verdict.messages.map(cut),
      checker: nameOf(state),
      rewards: parts,
    }),
  };
}

/** After the end nothing changes. */
function over(state: LeanState): Transition<LeanState> {
  const proved = state.feedback.status === 'proved';
  const info = stepInfo(proved, false, false, proved ? 'proved' : TIME_LIMIT, {
    status: 'over',
    messages: [],
    checker: nameOf(state),
    rewards: { step: 0, tactic: 0, proof: 0, cap: 0 },
  });
  return { state, reward: 0, terminated: proved, truncated: !proved, info };
}

function cut(text: string): string {
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
}

async function chooseTheorem(
  { data, split, topic }: LeanConfig,
  rng: Random,
  { statement, informal = '', index }: LeanOptions,
): Promise<Theorem> {
  if (statement !== undefined) {
    return { name: '', informal, header: '', statement: openStatement(statement), proof: [] };
  }
  if (informal !== '') throw new InvalidOptions('/statement', 'informal needs the statement next to it');
  if (data !== undefined) {
    return chooseRecord(
      { path: data, read: readTheorem, split, key: theorem => theorem.statement, index },
      rng,
    );
  }
  if (index !== undefined) throw new InvalidOptions('/index', 'index needs a data file in the config');
  return drawTheorem(topic, split, rng);
}
