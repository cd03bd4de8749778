import { counted } from '../../../../shared/counted.ts';

/** Rules of the checker, in report order. */
export const RULES = {
  spec: 'the specification is complete and its defaults, presets and example action are valid',
  description: 'the description says what to do and how to act, under every configuration',
  no_exceptions: 'reset, step and observe never throw, for any action',
  plain_state: 'states and infos are plain JSON',
  immutability: 'a step never alters the state it was given',
  observation_space: 'observations are of the right type and within the observation space',
  action_space: 'actions of the space are taken, others are called invalid and change nothing',
  valid_actions: 'the actions that are listed as valid are',
  reward_range: 'rewards are finite and within the range that the specification names',
  info: 'every step reports success, action_is_valid and action_is_effective',
  determinism: 'the same seed and actions give the same episode',
  snapshot: 'a state that went through JSON, with its generator, has the same future',
  global_randomness: 'no clock and no random numbers but those of the generator handed over',
  references: 'reference policies plan actions that the environment takes',
  rendering: 'pictures have as many bytes as their size asks for',
} as const;

export type Rule = keyof typeof RULES;

export interface Finding {
  readonly rule: Rule;
  readonly message: string;
  /** Configuration, seed and step of the finding, where they matter. */
  readonly where?: string;
}

export interface CheckReport {
  readonly env_id: string;
  readonly passed: boolean;
  /** Number of configurations and episodes played. */
  readonly configurations: number;
  readonly episodes: number;
  readonly steps: number;
  /** A few for each rule. */
  readonly findings: readonly Finding[];
  /** Oddities that may be intended; they fail no rule. */
  readonly warnings?: readonly string[];
}

/** Most findings kept for each rule. */
const MAX_FINDINGS_PER_RULE = 3;
const MAX_WARNINGS = 3;

/** Findings in order of arrival. */
export class Findings {
  readonly list: Finding[] = [];
  readonly #warnings = new Set<string>();
  #where = '';

  /** Sets the place of the following findings. */
  at(where: string): void {
    this.#where = where;
  }

  get warnings(): readonly string[] {
    return [...this.#warnings];
  }

  /** Records an oddity that may be intended and fails no rule. */
  warn(message: string): void {
    if (this.#warnings.size < MAX_WARNINGS) this.#warnings.add(message);
  }

  add(rule: Rule, message: string): void {
    const known = this.list.filter(finding => finding.rule === rule);
    if (known.length >= MAX_FINDINGS_PER_RULE || known.some(finding => finding.message === message)) return;
    this.list.push({ rule, message, ...(this.#where && { where: this.#where }) });
  }
}

/** The report for people: one line a rule, with its findings below. */
export function formatReport(report: CheckReport): string {
  const lines = [
    `${report.env_id}: ${report.passed ? 'passed' : 'FAILED'} (${counted(report.configurations, 'configuration')}, ${counted(report.episodes, 'episode')}, ${counted(report.steps, 'step')})`,
  ];
  for (const [rule, title] of Object.entries(RULES)) {
    const findings = report.findings.filter(finding => finding.rule === rule);
    lines.push(`  ${findings.length === 0 ? 'ok  ' : 'FAIL'} ${rule}: ${title}`);
    for (const { message, where } of findings) lines.push(`         ${message}${where ? ` (${where})` : ''}`);
  }
  for (const warning of report.warnings ?? []) lines.push(`  hint ${warning}`);
  return lines.join('\n');
}
