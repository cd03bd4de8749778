import { resolve } from 'node:path';
import { stringify } from 'yaml';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { TRAINER } from '../../../shared/program.ts';
import { shownReturn } from '../../tracking/progress.ts';
import type { GivenEpisode } from '../../training/supervised/given-actions.ts';
import type { Baseline, Choice, Choices, TokenLengths } from './choices.ts';
import type { Survey } from './survey.ts';
import { warningsOf } from './warnings.ts';

/** The subject of a config file. */
export interface ConfigSubject {
  readonly survey: Survey;
  readonly baseline: Baseline;
  /** Address of the environment server. */
  readonly server: string;
  /** Environment settings that differ from their defaults. */
  readonly config: JsonObject;
  /** Name of the environment in the run. */
  readonly tag: string;
  /** Name of the file. */
  readonly file: string;
  readonly demonstrations?: Demonstrations;
  /** Absent until measured. */
  readonly lengths?: TokenLengths;
}

/** Given demonstrations. */
export interface Demonstrations {
  readonly file: string;
  readonly episodes: readonly GivenEpisode[];
  /** Listed actions and demonstrated ones, where the demonstrations have others. */
  readonly actions?: readonly Json[];
}

export const notesOf = ({ survey, lengths, demonstrations }: ConfigSubject): string[] =>
  warningsOf(survey, lengths, demonstrations !== undefined).map(warning => `Note: ${oneLine(warning)}`);

const inline = (value: unknown): string => stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trim();

/** A line of the config with a choice and its reason; none for a default. */
const line = <T>(
  key: string,
  choice: Choice<T> | undefined,
  shown = (value: T) => inline(value),
): string[] => (choice === undefined ? [] : [`  ${key}: ${shown(choice.value)} # ${choice.reason}`]);

/** The config as YAML: each choice with its reason on the same line. */
export function configText(subject: ConfigSubject, choices: Choices): string {
  const { survey, server, config, tag, file, demonstrations } = subject;
  const { document } = survey;
  const { turns, window, steps } = choices;
  const every = Math.ceil(steps.value / 6);
  return `${[
    `# Trains a small policy from random weights on ${document.env_id} (${oneLine(document.title)}). Written by \`${TRAINER} init\`.`,
    `# ${baselineSentence(subject)}`,
    ...notesOf(subject).map(note => `# ${note}`),
    `#   ${TRAINER} train ${file}`,
    '# Every other setting and its default: the same command with --dry-run.',
    'extends: ragen:base # PPO with a value head, prompts of a few tokens',
    `servers: ${inline([{ url: server }])}`,
    `train_tags: ${inline([tag])}`,
    '',
    'tags:',
    `  ${inline(tag)}:`,
    `    env_id: ${inline(document.env_id)}`,
    ...(Object.keys(config).length === 0 ? [] : [`    config: ${inline(config)}`]),
    ...(demonstrations?.actions
      ? [
          `    actions: ${inline(demonstrations.actions)} # those of the environment and of the demonstrations`,
        ]
      : []),
    ...line('  number_span', choices.numberSpan),
    ...line('  max_turn', turns),
    '    max_actions_per_turn: 1 # the policy sees what each action leads to',
    `    max_actions_per_traj: ${turns.value}`,
    ...(survey.player === 'example'
      ? []
      : [`    random_success: ${subject.baseline.success.toFixed(3)} # shown in the report`]),
    '',
    'policy:',
    ...line('tokenizer', choices.tokenizer),
    ...line('layers', choices.layers),
    ...line('context', choices.context),
    '',
    'rollout:',
    ...line('response_length', choices.responseLength),
    ...(window
      ? [
          '  context_mode: single_turn # the policy sees only the latest observation, which it learns to read sooner',
          ...line('max_context_window', window),
          '  # If an observation makes sense only after earlier ones, raise max_context_window, and policy.context by the same factor.',
        ]
      : []),
    ...line('constrained', choices.constrained),
    ...line('format_penalty', choices.formatPenalty),
    ...line('env_groups', choices.groups),
    '',
    ...warmStartLines(subject, choices),
    'algorithm:',
    ...line('gamma', choices.gamma),
    '  bootstrap: none # an episode that runs out of steps has failed: no reward comes after it',
    ...(window
      ? [
          '  across_samples: true # each turn is one sample, with its own reward and the value of the next turn',
        ]
      : []),
    ...line('reward_scale', choices.rewardScale, exponential),
    ...line('mini_batch_size', choices.miniBatch),
    ...line('target_kl', choices.targetKl),
    '',
    ...(choices.entropy ? ['loss:', ...line('entropy_coefficient', choices.entropy), ''] : []),
    'optimizer:',
    ...line('learning_rate', choices.learningRate, exponential),
    '  warmup_iterations: 2',
    '  muon: {} # small policies learn in fewer iterations than with AdamW alone',
    '',
    'training:',
    ...line('steps', steps),
    `  validate_every: ${every}`,
    `  checkpoint_every: ${every}`,
    '',
    'validation:',
    ...line('episodes', choices.validation),
  ].join('\n')}\n`;
}

/** The section `warm_start`; none where there is nothing to imitate. */
function warmStartLines({ demonstrations }: ConfigSubject, { warmStart, passes }: Choices): string[] {
  if (demonstrations && passes) {
    return [
      'warm_start: # imitates the demonstrations, each played again from its seed',
      `  files: ${inline([resolve(demonstrations.file)])}`,
      ...line('epochs', passes),
      '  muon: {} # AdamW alone takes several times as many passes',
      '',
    ];
  }
  if (!warmStart) return [];
  return [
    'warm_start: # imitates random play, which shows how answers are written and how the world moves, not what to do',
    '  policy: random',
    '  learn: everything',
    ...line('episodes', warmStart),
    '  batch_size: 32',
    '  epochs: 4',
    '',
  ];
}

/** The score to beat, as a sentence. */
export function baselineSentence({ survey, baseline }: ConfigSubject): string {
  const { success, episodes, meanReturn, meanSteps } = baseline;
  const who = survey.player === 'example' ? 'Its example action alone' : 'Random play';
  return `${who} succeeds in ${(100 * success).toFixed(0)} % of ${episodes} episodes, with a return of ${shownReturn(meanReturn)} in ${shownReturn(meanSteps)} steps.`;
}

const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

/** YAML 1.2 reads `2.0e-3` as a number; `0.002` is harder to compare. */
const exponential = (value: number): string => value.toExponential(1);
