/** The words of the `chat` prompt. Lines with a placeholder that has no value are left out. */
export const CHAT_TEXT = {
  system: [
    '{instruction}',
    '',
    'Symbols: {symbols}.',
    'Actions: {actions}.',
    'An action is written like this: {actionFormat}',
    'An answer may hold up to {maxActionsPerTurn} actions, separated by {separator}; they are carried out in that order.',
    'An answer holds one action.{single}',
    'An episode has at most {maxTurns} turns and {maxActionsPerTrajectory} actions.',
  ],
  turn: [
    'Your last turn earned {lastReward}.',
    'Your last answer held no valid action, so nothing has changed.{lastInvalid}',
    'Turn {turn}. The state is:',
    '{state}',
    'You have {actionsLeft} actions left. Reply in exactly this form: {form}',
    'Use at most {responseLength} tokens.',
  ],
  past: ['Turn {turn}. The state was:', '{state}', 'You replied: {response}', 'This earned {reward}.'],
  thinkForm: '<think> your reasoning </think><answer> {example} </answer>',
  answerForm: '<answer> {example} </answer>',
} as const;
