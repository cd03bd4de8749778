import { DRAWN_SPAN } from '../../rollout/drawn-actions.ts';
import { type Survey, spaceType } from './survey.ts';

/** Longest episode, in tokens, that a small policy from random weights learns to read in full within minutes. */
const MAX_EPISODE_TOKENS = 256;
/** The same where observations answer the last action, so that one makes sense only after the others. */
const MAX_DIALOGUE_TOKENS = 1536;
/** Share of an episode's first words in later observations below which those are such answers. */
const LEAST_REPETITION = 0.5;
/** Most tokens of a turn that is read in full: attention takes longer than all else there. Of a longer one so many are read. */
export const MAX_TURN_TOKENS = 2048;
export const CUT_TURN_TOKENS = 1024;
/** Margin of a response above the longest one of random play, as a share. */
const RESPONSE_ROOM = 1.5;
/** Margin of a one-turn prompt above the longest one of random play, as a share: other levels may show more. */
const TURN_ROOM = 1.25;
const ANSWER_END_TOKENS = 1;
/** Longest response that the schema of JSON actions allows for which there is room. */
const MAX_HELD_TOKENS = 256;
/** Tokens of a response with a listed action, which is one, and its end. */
const LISTED_ACTION_TOKENS = 2;
/**
 * Episodes of an iteration: twice as many, up to the most, while they have fewer turns together than this, and half as many, down to
 * the least, while their prompts have more tokens.
 */
const EPISODES = 128;
const MAX_EPISODES = 512;
const LEAST_EPISODES = 32;
const ITERATION_TURNS = 256;
/** Samples of an optimizer step: twice as many while an iteration has more steps than this, which its KL limit would cut off. */
export const MINI_BATCH = 32;
const MAX_UPDATES = 48;
const ITERATION_TOKENS = 600_000;
/**
 * Answers and episodes of the warm start, and the tokens of their prompts, above which there are fewer, down to the least, or none
 * where every response is well-formed anyway.
 */
const DEMONSTRATED_ANSWERS = 2400;
const DEMONSTRATIONS = [100, 600] as const;
const LEAST_DEMONSTRATIONS = 16;
const DEMONSTRATED_TOKENS = 500_000;
/** Turns that given demonstrations show in all passes, and the passes from and to. */
const DEMONSTRATED_TURNS = 24_000;
const LEAST_PASSES = 2;
const MAX_PASSES = 60;
/** KL of a step that ends the updates of an iteration; without a limit a game went from 100 % to 0 by steps of 0.2 and 0.6. */
const TARGET_KL = 0.05;
const CONSTRAINED_KL = 0.1;
/**
 * Entropy coefficient where penalties make waiting the best choice at first; 0.01 to 0.1 ended at waiting. With numbers that are
 * spelled, chance makes them long instead.
 */
const COSTLY_ENTROPY = 0.2;
/** Least discount of a turn, and the least weight of the last reward at the beginning of an episode of random play. */
const LEAST_GAMMA = 0.9;
const LAST_REWARD_WEIGHT = 0.5;
/** Default of `rollout.format_penalty`, which suits returns near 1. */
const FORMAT_PENALTY = -0.1;
/** Largest returns of random play from and to which the value head learns them as they are. */
const PLAIN_RETURNS = [0.1, 20] as const;

/** Lengths of the policy's prompts and responses, in tokens of its tokenizer. */
export interface TokenLengths {
  /** Longest prompt of a turn. */
  readonly turn: number;
  /** Longest well-formed response with one action. */
  readonly response: number;
  /**
   * The longest response, infinite without one, where responses can be held to the schema of JSON actions, from which
   * random play draws; else why they cannot.
   */
  readonly schema?: { readonly longest: number } | { readonly fault: string };
}

/** Tokens of a turn in bytes above which a vocabulary is learned, and the share of them below which it is used. */
const LEARNED_TURN_TOKENS = 256;
const LEARNED_SHARE = 3 / 4;

/** A tokenizer of the texts of random play. */
interface LearnedVocabulary {
  /** The place of its files, relative to the config. */
  readonly folder: string;
  /** Longest prompt of a turn in bytes. */
  readonly bytes: number;
}

/** Findings about an environment besides its survey. */
interface ChosenWith {
  readonly learned?: LearnedVocabulary;
  /** Turns of each given demonstration. */
  readonly demonstrated?: readonly number[];
}

/** True where prompts are so long in bytes that a vocabulary is worth learning. */
export const isLongInBytes = (survey: Survey, bytes: TokenLengths): boolean =>
  !hasVocabulary(survey) && bytes.turn > LEARNED_TURN_TOKENS;

/** True where a learned vocabulary shortens prompts enough to make up for tokens that are rarer than bytes. */
export const isShorter = (learned: TokenLengths, bytes: TokenLengths): boolean =>
  learned.turn <= LEARNED_SHARE * bytes.turn;

/** A setting that `init` chose, with the reason. */
export interface Choice<T> {
  readonly value: T;
  readonly reason: string;
}

/** The settings that `init` chooses for an environment; undefined where the default is right. */
export type Choices = ReturnType<typeof chooseSettings>;

/** Results of random play. */
export interface Baseline {
  /** Share of successful episodes. */
  readonly success: number;
  readonly episodes: number;
  readonly meanReturn: number;
  readonly returns: readonly [least: number, most: number];
  readonly meanSteps: number;
}

export function baselineOf({ episodes }: Survey): Baseline {
  const mean = (value: (episode: (typeof episodes)[number]) => number) =>
    episodes.reduce((sum, episode) => sum + value(episode), 0) / episodes.length;
  const returns = episodes.map(episode => episode.return);
  return {
    success: mean(({ success }) => Number(success)),
    episodes: episodes.length,
    meanReturn: mean(episode => episode.return),
    returns: [Math.min(...returns), Math.max(...returns)],
    meanSteps: mean(({ steps }) => steps),
  };
}

/** Return of an episode with only its cheapest steps. */
export const idleReturn = ({ idleReward, stepLimit }: Survey): number =>
  idleReward === undefined ? Number.NEGATIVE_INFINITY : idleReward * stepLimit;

/** True where success is possible and waiting returns more than random play: a policy may learn to wait. */
export function isCostly(survey: Survey): boolean {
  const { success, meanReturn } = baselineOf(survey);
  return success > 0 && meanReturn < idleReturn(survey);
}

/** True if the environment lists its vocabulary. */
const hasVocabulary = ({ document }: Survey): boolean => document.vocabulary !== undefined;

/**
 * The settings of a run, each with its reason.
 * @param tokens absent until measured: a context and responses with room for anything
 * @throws Error for observations that are too long for a small policy and that prompts cannot cut
 */
export function chooseSettings(
  survey: Survey,
  tokens?: TokenLengths,
  { learned, demonstrated = [] }: ChosenWith = {},
) {
  const { max_episode_steps } = survey.document;
  const groups = groupsOf(survey, tokens);
  const fitted = tokens ? lengths(survey, tokens) : UNMEASURED;
  return {
    turns: {
      value: survey.stepLimit,
      reason:
        survey.stepLimit === max_episode_steps
          ? 'the environment ends an episode then'
          : `of the ${max_episode_steps} that the environment allows: longer ones take more time than they teach`,
    },
    numberSpan:
      survey.isUnbounded && demonstrated.length === 0
        ? {
            value: DRAWN_SPAN,
            reason: 'numbers without a bound go so far from 0 or their other bound, as in random play',
          }
        : undefined,
    ...fitted,
    tokenizer: tokenizer(survey, tokens, learned),
    constrained: constrained(survey, tokens),
    targetKl: targetKl(survey, tokens),
    warmStart: demonstrated.length > 0 ? undefined : warmStart(survey, tokens),
    passes: passes(demonstrated),
    layers: { value: 2, reason: 'about 100,000 weights learn this in minutes on two cores' },
    learningRate: learningRate(survey, tokens, demonstrated.length > 0),
    gamma: gamma(survey),
    entropy:
      isCostly(survey) && survey.player !== 'drawn'
        ? {
            value: COSTLY_ENTROPY,
            reason: 'waiting returns more than random play: chance keeps the policy trying',
          }
        : undefined,
    steps: { value: hasVocabulary(survey) ? 30 : 60, reason: `iterations of ${groups.value} episodes` },
    groups,
    miniBatch: fitted.window && miniBatch(groups.value * baselineOf(survey).meanSteps),
    validation: validation(2 * groups.value),
    rewardScale: rewardScale(survey),
    formatPenalty: formatPenalty(survey, tokens),
  };
}

/** Undefined where the tokenizer is made from the environment's vocabulary. */
function tokenizer(
  survey: Survey,
  tokens: TokenLengths | undefined,
  learned: LearnedVocabulary | undefined,
): Choice<string> | undefined {
  if (hasVocabulary(survey)) return undefined;
  const shorter = 'pairs of bytes that random play showed often';
  return learned
    ? {
        value: learned.folder,
        reason: `${shorter}: ${tokens?.turn} tokens a turn instead of ${learned.bytes}`,
      }
    : { value: 'bytes', reason: 'the environment names no vocabulary, so the policy reads and writes bytes' };
}

function learningRate(
  survey: Survey,
  tokens: TokenLengths | undefined,
  isDemonstrated: boolean,
): Choice<number> {
  if (isDemonstrated) return { value: 5e-4, reason: 'larger steps lose what was imitated' };
  const isSpelled = !constrained(survey, tokens) && (tokens?.response ?? 0) > LISTED_ACTION_TOKENS;
  return isSpelled
    ? { value: 5e-4, reason: 'answers of several tokens lose their form in larger steps' }
    : {
        value: 2e-3,
        reason: 'small policies from random weights take large steps; lower it where success falls again',
      };
}

/** A discount that grows with the length of episodes: at 0.9 the beginning of 30 turns does not see a reward at their end. */
function gamma(survey: Survey): Choice<number> {
  const fitted = LAST_REWARD_WEIGHT ** (1 / baselineOf(survey).meanSteps);
  return fitted <= LEAST_GAMMA
    ? {
        value: LEAST_GAMMA,
        reason: 'a reward soon is worth more than the same reward late, so each turn has something to learn',
      }
    : {
        value: Number(fitted.toFixed(3)),
        reason: 'a reward at the end of an episode of random play counts half at its beginning',
      };
}

/** Tokens that the prompts of an episode of random play have together. */
function episodeTokens(survey: Survey, { turn }: Pick<TokenLengths, 'turn'> = { turn: 0 }): number {
  return baselineOf(survey).meanSteps * (turn > MAX_TURN_TOKENS ? CUT_TURN_TOKENS : turn);
}

function groupsOf(survey: Survey, tokens: TokenLengths | undefined): Choice<number> {
  const each = episodeTokens(survey, tokens);
  const { meanSteps } = baselineOf(survey);
  let value = EPISODES;
  while (value < MAX_EPISODES && value * meanSteps < ITERATION_TURNS) value *= 2;
  while (value > LEAST_EPISODES && value * each > ITERATION_TOKENS) value /= 2;
  const few = `episodes an iteration: each has about ${Number(each.toPrecision(2))} tokens; more teach more evenly`;
  const usual = 'episodes an iteration, each on its own level';
  return {
    value,
    reason: value < EPISODES ? few : value > EPISODES ? `${usual}: more of short ones` : usual,
  };
}

/** Samples of an optimizer step where an iteration has so many of one turn each; undefined where the default is right. */
function miniBatch(samples: number): Choice<number> | undefined {
  let value = MINI_BATCH;
  while (samples / value > MAX_UPDATES) value *= 2;
  if (value === MINI_BATCH) return undefined;
  const shown = Number(samples.toPrecision(2));
  return {
    value,
    reason: `of about ${shown} turns an iteration: many small steps would reach target_kl early`,
  };
}

/** Episodes of a validation, with half the width of the 95 % interval. */
function validation(value: number): Choice<number> {
  return { value, reason: `gives success to within ${Math.round(98 / Math.sqrt(value))} points` };
}

/** Passes over demonstrations of these numbers of turns: few are seen often. Undefined without any. */
function passes(demonstrated: readonly number[]): Choice<number> | undefined {
  if (demonstrated.length === 0) return undefined;
  const turns = demonstrated.reduce((sum, count) => sum + count, 0);
  const value = Math.min(MAX_PASSES, Math.max(LEAST_PASSES, Math.round(DEMONSTRATED_TURNS / turns)));
  return {
    value,
    reason: `passes over ${turns} turns: until they are known, few enough to try other actions`,
  };
}

/**
 * Episodes of random play to imitate: fewer where they are long, because each turn shows how to answer. None where states list their
 * valid actions: every answer is then well-formed, and the first iterations teach what random play would, in less time. Nor where
 * waiting returns more than such play, as after it the policy learns to wait even with more chance; but a schema alone lets numbers
 * have any size, and random play shows which are usual.
 */
function warmStart(survey: Survey, tokens: TokenLengths | undefined): Choice<number> | undefined {
  if (survey.player === 'example' || survey.player === 'valid') return undefined;
  if (isCostly(survey) && survey.player !== 'drawn' && constrained(survey, tokens)) return undefined;
  const [least, most] = DEMONSTRATIONS;
  const { meanSteps } = baselineOf(survey);
  const wanted = Math.min(most, Math.max(least, Math.round(DEMONSTRATED_ANSWERS / meanSteps)));
  const affordable = Math.floor(DEMONSTRATED_TOKENS / episodeTokens(survey, tokens));
  if (affordable < least && constrained(survey, tokens)) return undefined;
  const value = Math.min(wanted, Math.max(LEAST_DEMONSTRATIONS, affordable));
  const answers = Number((value * meanSteps).toPrecision(2));
  const purpose =
    value < wanted ? 'more take long with prompts of this length' : 'enough to write nearly every one well';
  return { value, reason: `about ${answers} answers: ${purpose}` };
}

/** A power of ten that brings the largest return between 1 and 10: a value head learns in steps of fixed size, however large they are. */
function rewardScale(survey: Survey): Choice<number> | undefined {
  const [least, most] = PLAIN_RETURNS;
  const largest = Math.max(...baselineOf(survey).returns.map(Math.abs));
  if (largest === 0 || (largest >= least && largest <= most)) return undefined;
  const value = 10 ** -Math.floor(Math.log10(largest));
  const reason = `random play returned up to ${Number(largest.toPrecision(3))}: values between 1 and 10 are learned`;
  return { value, reason };
}

/**
 * An answer that is no action changes nothing and earns nothing, so where actions cost something it would be the best choice: it
 * costs as much as the worst action of random play. Undefined where the default is enough or responses are constrained.
 */
function formatPenalty(survey: Survey, tokens: TokenLengths | undefined): Choice<number> | undefined {
  if (constrained(survey, tokens)) return undefined;
  const usual = FORMAT_PENALTY / (rewardScale(survey)?.value ?? 1);
  const value = Number(Math.min(usual, survey.leastReward).toPrecision(2));
  if (value === FORMAT_PENALTY) return undefined;
  const reason = 'an answer that is no action costs as much as the worst action of random play';
  return { value, reason: value === usual ? 'in the size of the rewards' : reason };
}

/** Only named or valid actions can be sampled; undefined where an action may be any text. */
function constrained(
  { player, document, listsAll }: Survey,
  tokens: TokenLengths | undefined,
): Choice<true> | undefined {
  const isListed = player === 'examples' && tokens?.response === LISTED_ACTION_TOKENS;
  if (player === 'names') return { value: true, reason: 'every response is one of the named actions' };
  if (player === 'valid') return { value: true, reason: 'every response is a valid action of its state' };
  if (listsAll) return { value: true, reason: 'every response is one of the listed actions, which are all' };
  if (tokens?.schema && 'longest' in tokens.schema) {
    return { value: true, reason: 'every response is JSON that fits the schema of the action space' };
  }
  if (!isListed || spaceType(document.action_space) !== 'Text') return undefined;
  const reason =
    'every response is one of the listed actions, which are one token each: list all that are worth saying';
  return { value: true, reason };
}

function targetKl(survey: Survey, tokens: TokenLengths | undefined): Choice<number> {
  return constrained(survey, tokens)
    ? { value: CONSTRAINED_KL, reason: 'a larger step could lose what was learned: updates end there' }
    : { value: TARGET_KL, reason: 'a larger step could lose the form of answers: updates end there' };
}

const UNMEASURED = {
  responseLength: { value: 256, reason: '' },
  context: { value: 1 << 20, reason: '' },
  window: undefined,
} as const;

/** Lengths of a response and of a prompt, and the turns in it; the last are undefined where it shows the whole episode. */
function lengths({ document, stepLimit, observations, repetition = 1 }: Survey, tokens: TokenLengths) {
  const isCut = tokens.turn > MAX_TURN_TOKENS;
  if (isCut && document.vocabulary) {
    throw new Error(
      `an observation of ${document.env_id} has up to ${longestOf(observations)} characters, ${tokens.turn} words of its vocabulary; a small policy reads ${MAX_TURN_TOKENS}. ` +
        'Shorten what it shows, leave `vocabulary` out of its definition, so that prompts show the beginning and the end, ' +
        'or train a pretrained model that reads text: docs/how-to/pretrained-models.md',
    );
  }
  const response = Math.ceil(RESPONSE_ROOM * (tokens.response - ANSWER_END_TOKENS) + ANSWER_END_TOKENS);
  const { longest = 0 } = { ...tokens.schema } as { readonly longest?: number };
  const isHeld = longest > 0 && longest <= MAX_HELD_TOKENS;
  const room = isHeld ? longest : response;
  const whole = stepLimit * (tokens.turn + response);
  const isDialogue = !isCut && repetition < LEAST_REPETITION;
  const fits = whole <= MAX_EPISODE_TOKENS || isDialogue;
  const last = whole > MAX_DIALOGUE_TOKENS ? '; of longer episodes the last turns' : '';
  const why = isDialogue ? `; observations do not repeat what the first one says${last}` : '';
  const oneTurn = Math.ceil(TURN_ROOM * tokens.turn) + room;
  const tooLong = `a whole episode may have ${whole} tokens`;
  return {
    responseLength: {
      value: room,
      reason: isHeld
        ? 'tokens: the longest answer that the schema of the action space allows'
        : `tokens; the longest action of random play took ${tokens.response}`,
    },
    context: fits
      ? {
          value: Math.max(oneTurn, Math.min(whole + Math.max(0, room - response), MAX_DIALOGUE_TOKENS)),
          reason: `tokens: ${stepLimit} turns of at most ${tokens.turn}, and ${response} of each response${why}`,
        }
      : {
          value: isCut ? CUT_TURN_TOKENS + room : oneTurn,
          reason: `tokens: a turn of random play had ${tokens.turn} at most, a response has ${room}`,
        },
    window: fits
      ? undefined
      : { value: 1, reason: `${tooLong}; up to ${MAX_EPISODE_TOKENS} the policy would see all turns` },
  };
}

export const longestOf = (texts: readonly string[]): number =>
  texts.reduce((most, text) => Math.max(most, text.length), 0);

/** The greatest of these numbers, which are more than a call takes arguments where states list many valid actions. */
export const mostOf = (numbers: readonly number[]): number => numbers.reduce((a, b) => Math.max(a, b), 0);
