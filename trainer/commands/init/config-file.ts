import { stringify } from 'yaml';
import type { JsonObject } from '../../../shared/json.ts';
import { TRAINER } from '../../../shared/program.ts';
import { type Baseline, type Choices, warningsOf } from './choices.ts';
import type { Survey } from './survey.ts';

/** The subject of a config file. */
export interface ConfigSubject {
  readonly survey: Survey;
  readonly baseline: Baseline;
  /** Address of the environment server. */
  readonly server: string;
  /** Settings of the environment that differ from its defaults. */
  readonly config: JsonObject;
  /** Name of the environment in the run. */
  readonly tag: string;
  /** Name of the file. */
  readonly file: string;
}

const inline = (value: unknown): string => stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trim();

/** The config as YAML: each choice with its reason in the same line. */
export function configText(subject: ConfigSubject, choices: Choices): string {
  const { survey, server, config, tag, file } = subject;
  const { document } = survey;
  const {
    turns,
    responseLength,
    constrained,
    context,
    window,
    tokenizer,
    layers,
    steps,
    groups,
    learningRate,
    warmStart,
  } = choices;
  const settings = Object.keys(config).length === 0 ? [] : [`    config: ${inline(config)}`];
  return `${[
    `# Trains a small policy from random weights on ${document.env_id} (${oneLine(document.title)}). Written by \`${TRAINER} init\`.`,
    `# ${baselineSentence(subject)}`,
    ...warningsOf(survey).map(warning => `# Note: ${warning}`),
    `#   ${TRAINER} train ${file}`,
    '# Every other setting and its default: the same command with --dry-run.',
    'extends: ragen:base # PPO with a value head, prompts of a few tokens',
    `servers: ${inline([{ url: server }])}`,
    `train_tags: ${inline([tag])}`,
    '',
    'tags:',
    `  ${inline(tag)}:`,
    `    env_id: ${inline(document.env_id)}`,
    ...settings,
    `    max_turn: ${turns.value} # ${turns.reason}`,
    '    max_actions_per_turn: 1 # the policy sees what each action leads to',
    `    max_actions_per_traj: ${turns.value}`,
    ...(survey.player === 'example'
      ? []
      : [`    random_success: ${subject.baseline.success.toFixed(3)} # shown in the report`]),
    '',
    'policy:',
    ...(tokenizer ? [`  tokenizer: ${tokenizer.value} # ${tokenizer.reason}`] : []),
    `  layers: ${layers.value} # ${layers.reason}`,
    `  context: ${context.value} # ${context.reason}`,
    '',
    'rollout:',
    `  response_length: ${responseLength.value} # ${responseLength.reason}`,
    ...(window
      ? [
          '  context_mode: single_turn # the policy sees only the latest observation, which it learns to read sooner',
          `  max_context_window: ${window.value} # ${window.reason}`,
          '  # If an observation makes sense only after earlier ones, raise max_context_window, and policy.context by the same factor.',
        ]
      : []),
    ...(constrained ? [`  constrained: true # ${constrained.reason}`] : []),
    `  env_groups: ${groups.value} # ${groups.reason}`,
    '',
    ...(warmStart
      ? [
          'warm_start: # imitates random play, which shows how answers are written and how the world moves, not what to do',
          '  policy: random',
          '  learn: everything',
          `  episodes: ${warmStart.value} # ${warmStart.reason}`,
          '  batch_size: 32',
          '  epochs: 4',
          '',
        ]
      : []),
    'algorithm:',
    '  gamma: 0.9 # a reward soon is worth more than the same reward late, so each turn has something to learn',
    '  bootstrap: none # an episode that runs out of steps has failed: no reward comes after it',
    '',
    'optimizer:',
    `  learning_rate: ${exponential(learningRate.value)} # ${learningRate.reason}`,
    '  warmup_iterations: 2',
    '',
    'training:',
    `  steps: ${steps.value} # ${steps.reason}`,
    `  validate_every: ${Math.ceil(steps.value / 6)}`,
    `  checkpoint_every: ${Math.ceil(steps.value / 6)}`,
    '',
    'validation:',
    '  episodes: 256 # gives success to within 6 points',
  ].join('\n')}\n`;
}

/** The score to beat, in a sentence. */
export function baselineSentence({ survey, baseline }: ConfigSubject): string {
  const { success, episodes, meanReturn, meanSteps } = baseline;
  const who = survey.player === 'example' ? 'Its example action alone' : 'Random play';
  return `${who} succeeds in ${(100 * success).toFixed(0)} % of ${episodes} episodes, with a return of ${short(meanReturn)} in ${short(meanSteps)} steps.`;
}

const short = (value: number): string => String(Number(value.toPrecision(3)));

const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ').trim();

/** YAML 1.2 reads `2.0e-3` as a number; `0.002` is harder to compare. */
const exponential = (value: number): string => value.toExponential(1);
