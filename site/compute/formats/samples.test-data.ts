/** Rows as each program writes them, cut to the fields that matter and a few that do not. */

const CHAT = '<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n';

/** TRL 0.24's table of completions; the rewards are those of two functions. */
export const TRL_ROWS = [
  {
    step: 10,
    prompt: CHAT,
    completion: '5<|im_end|>',
    accuracy_reward: 1,
    format_reward: 0.5,
    advantage: 0.7,
  },
  {
    step: 10,
    prompt: CHAT,
    completion: '6<|im_end|>',
    accuracy_reward: 0,
    format_reward: 0.5,
    advantage: -0.7,
  },
  { step: 20, prompt: CHAT, completion: '5', accuracy_reward: 1, format_reward: null, advantage: 0 },
];

/** verl's dump of `trainer.rollout_data_dir`, with what a reward function of DAPO adds; the second has two turns. */
export const VERL_ROWS = [
  { input: 'user\nWhat is 2 + 3?\nassistant\n', output: 'It is 5.', gts: '5', score: 1, step: 3, acc: true },
  {
    input: CHAT,
    output:
      'I look.<|im_end|>\n<|im_start|>user\nYou see 2 apples.<|im_end|>\n<|im_start|>assistant\n4<|im_end|>',
    gts: '5',
    score: -1,
    step: 3,
    acc: false,
    overlong_reward: -0.2,
  },
];

/** Results of verifiers 0.1.9: a call of a tool, a truncated answer, and a rollout that failed. */
export const VERIFIERS_ROWS = [
  {
    example_id: 0,
    prompt: [
      { role: 'system', content: 'Use the tool.' },
      { role: 'user', content: [{ type: 'text', text: 'Weather in Rome?' }] },
    ],
    completion: [
      {
        role: 'assistant',
        content: 'I ask.',
        tool_calls: ['{"id":"c1","name":"weather","arguments":"{\\"city\\":\\"Rome\\"}"}'],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'sunny' },
      { role: 'assistant', content: 'It is sunny.' },
    ],
    answer: 'sunny',
    task: 'weather',
    reward: 0.9,
    metrics: { exact_match: 0, num_turns: 2 },
    timing: { total_ms: 12 },
    is_completed: true,
    is_truncated: false,
    stop_condition: 'no_tools_called',
    error: null,
  },
  {
    example_id: 1,
    prompt: 'Count to 9.',
    completion: '1 2 3',
    reward: 0,
    metrics: {},
    is_completed: true,
    is_truncated: true,
    task: 'weather',
  },
  {
    example_id: 2,
    prompt: null,
    completion: null,
    reward: 0,
    task: 'weather',
    error: { error: 'ModelError' },
  },
];

/** A trial of Harbor: a call, what it returned, and the end. */
export const ATIF_DOCUMENT = {
  schema_version: 'ATIF-v1.4',
  session_id: 'trial-1',
  agent: { name: 'terminus-2', version: '2.0', model_name: 'm' },
  steps: [
    { step_id: 1, source: 'system', message: 'You have a shell.' },
    { step_id: 2, source: 'user', message: 'List the files.' },
    {
      step_id: 3,
      source: 'agent',
      message: 'I list them.',
      reasoning_content: 'ls does that.',
      tool_calls: [{ tool_call_id: 'c1', function_name: 'bash', arguments: { command: 'ls' } }],
      observation: { results: [{ source_call_id: 'c1', content: 'a.txt' }] },
      metrics: { prompt_tokens: 20, completion_tokens: 9 },
    },
    { step_id: 4, source: 'agent', message: 'There is a.txt.' },
  ],
  final_metrics: { total_steps: 4 },
};

export const jsonLines = (rows: readonly unknown[]): string =>
  rows.map(row => `${JSON.stringify(row)}\n`).join('');
