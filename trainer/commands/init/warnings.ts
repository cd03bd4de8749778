import { DRAWN_SPAN } from '../../rollout/drawn-actions.ts';
import { shownReturn } from '../../tracking/progress.ts';
import {
  baselineOf,
  CUT_TURN_TOKENS,
  idleReturn,
  isCostly,
  longestOf,
  MAX_TURN_TOKENS,
  type TokenLengths,
} from './choices.ts';
import { SURVEY_EPISODES, type Survey, spaceType } from './survey.ts';

/** Tokens of a turn above which a note says what they cost, and those of a usual one. */
const LONG_TURN_TOKENS = 768;
const USUAL_TURN_TOKENS = 100;

/** Share of episodes with another return than most up to which rewards are rare. */
const RARE = 0.02;

/** Ways out where random play finds nothing. */
const REMEDIES =
  'Give demonstrations (`--demonstrations FILE`, with lines `{"seed": 7, "actions": ["…"]}`), rewards on the way, or an easier configuration (`init ENV_ID key=value`)';

/** Notes for the reader before training, each one to three sentences. */
export function warningsOf(survey: Survey, tokens?: TokenLengths, demonstrated = false): string[] {
  const { document, player, stepLimit, episodes, failed } = survey;
  const { success, returns, meanReturn } = baselineOf(survey);
  const found: string[] = [];
  if (player === 'example') {
    found.push(
      `${document.env_id} has no random player: only its example action was played. List \`actions\` in its definition or the valid actions of each state, from which random play and the warm start draw, or give demonstrations (\`--demonstrations FILE\`).`,
    );
  }
  const turn = tokens?.turn ?? 0;
  if (turn > MAX_TURN_TOKENS) {
    found.push(
      `Its observations have up to ${longestOf(survey.observations)} characters, ${turn} tokens. The policy reads ${CUT_TURN_TOKENS} of a turn: the beginning and the end, with "[… characters cut]" between. Show what matters there, or raise policy.context, with which time grows.`,
    );
  } else if (turn > LONG_TURN_TOKENS) {
    found.push(
      `Its observations have up to ${turn} tokens, which the policy reads in full: a turn takes at least ${Math.round(turn / USUAL_TURN_TOKENS)} times the time of one with ${USUAL_TURN_TOKENS}. Leave out what does not matter.`,
    );
  }
  if (tokens?.schema && 'fault' in tokens.schema) {
    found.push(
      `Answers are not held to the schema of its actions, as ${tokens.schema.fault}. They are learned from random play, which draws from the schema.`,
    );
  }
  if (survey.isUnbounded && !demonstrated) {
    found.push(
      `Its action space has numbers without a bound. Random play and the policy name them up to ${DRAWN_SPAN} from 0 or their other bound: give them \`minimum\` and \`maximum\`, or change number_span in the file.`,
    );
  }
  if (failed.error) {
    found.push(
      `${failed.episodes} of ${SURVEY_EPISODES} episodes failed and were left out, as in training. The first: ${failed.error.message}`,
    );
  }
  if (episodes.length + failed.episodes < SURVEY_EPISODES) {
    found.push(`Its steps are slow: only ${episodes.length} of ${SURVEY_EPISODES} episodes ended in time.`);
  }
  if (episodes.every(({ ended }) => !ended) && stepLimit < document.max_episode_steps) {
    found.push(
      `No episode ended within ${stepLimit} steps, and success counts only where one ends. Set a lower max_episode_steps, or raise max_turn and max_actions_per_traj in the file.`,
    );
  }
  found.push(...listNotes(survey));
  if (demonstrated) return found;
  const { usual, others } = usualReturn(survey);
  if (returns[0] === returns[1]) {
    found.push(
      `None of ${episodes.length} episodes was rewarded more than another. All episodes returned ${usual}: with nothing to compare, nothing is learned. ${REMEDIES}.`,
    );
  } else if (isCostly(survey)) {
    found.push(
      `Trying costs more than waiting: random play returns ${shownReturn(meanReturn)}, an episode without penalties ${shownReturn(idleReturn(survey))}. A policy that avoids what is penalized before it learns when it pays ends at no success. ${player === 'drawn' ? '' : 'The larger loss.entropy_coefficient keeps it trying. '}If success falls, give demonstrations (\`--demonstrations FILE\`) or rewards on the way.`,
    );
  } else if (others <= RARE * episodes.length) {
    found.push(
      `Only ${others} of ${episodes.length} episodes returned anything but ${shownReturn(usual)}. A policy learns slowly from rewards that are so rare, or not at all. ${REMEDIES}.`,
    );
  } else if (success === 0) {
    found.push('Random play never succeeded; the policy learns from the rewards on the way alone.');
    const misspelled = survey.misspelled === undefined ? '' : ` (it has \`${survey.misspelled}\`)`;
    const ends = episodes.filter(({ terminated }) => terminated).length;
    if (ends > 0) {
      found.push(
        `${ends} of ${episodes.length} episodes ended by its rules, none with \`success: true\` in its info${misspelled}: if such an end can be the goal, set it there, or success stays at 0 % while the return rises.`,
      );
    }
  }
  return found;
}

/** The most frequent return, and the number of episodes with another one. */
function usualReturn({ episodes }: Survey): { readonly usual: number; readonly others: number } {
  const counts = new Map<number, number>();
  for (const { return: value } of episodes) counts.set(value, (counts.get(value) ?? 0) + 1);
  const [[usual, count]] = [...counts].sort((a, b) => b[1] - a[1]);
  return { usual, others: episodes.length - count };
}

/** Notes on a list of texts, to which responses are held. */
function listNotes(survey: Survey): string[] {
  const { document, player } = survey;
  if (player !== 'examples' || spaceType(document.action_space) !== 'Text') return [];
  const { length } = document.example_actions!;
  const add = 'Add the others to `actions` in its definition, or to `actions` of its tag in the file';
  if (length === 1) {
    return [
      `It lists one action, and the policy can say nothing else, so there is nothing to learn. ${add}.`,
    ];
  }
  if (baselineOf(survey).success > 0) return [];
  return [
    `None of its ${length} listed actions led to success, and the policy says nothing else. If a right answer is missing: ${add.toLowerCase()}, or let each state list its valid actions.`,
  ];
}
