/** Rows as each program writes them, reduced to the fields that matter and a few that do not. */

const CHAT = '<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n';

/** TRL 0.24's table of completions with the rewards of two functions. */
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

/**
 * verl's dump of `trainer.rollout_data_dir`, with the fields of a DAPO reward function; the second row has two turns.
 */
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

/** Results of verifiers before 0.4: a tool call, a truncated answer, and a failed rollout. */
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

/** Episodes of verifiers 0.4: one of two turns with a compacted graph, and one that failed before it began. */
export const VERIFIERS_TRACES = [
  {
    id: '16',
    env: { id: 'boxes' },
    task: { type: 'RagenTask', data: { idx: 4, name: 'Sokoban-v0#4', answer: 'Left' }, key: 'b8' },
    run: { type: 'train', id: 'r', work: { type: 'train', step: 3 } },
    ok: true,
    errors: [],
    traces: [
      {
        version: 1,
        verifiers: { version: '0.4.0' },
        nodes: [
          { message: { role: 'user', content: 'Push the box.' }, sampled: false },
          { parent: 0, message: { role: 'assistant', content: 'Up' }, sampled: true },
          { parent: 0, message: { role: 'assistant', content: 'Left' }, sampled: true },
          { parent: 2, message: { role: 'user', content: 'Again.' }, sampled: false },
          { parent: 3, message: { role: 'assistant', content: 'Down' }, sampled: true },
        ],
        rewards: { episode_return: { score: 10, weight: 0.5 }, style: null },
        metrics: { success: 1, other: null },
        stop_condition: 'user_closed',
        is_timeout: false,
        errors: [],
      },
    ],
  },
  {
    env: { id: 'boxes' },
    task: { type: 'RagenTask', data: { idx: 4 }, key: 'b8' },
    ok: false,
    errors: [{ type: 'ModelError', message: 'away' }],
    traces: [],
  },
];

/** A trial of Harbor: a tool call, its result, and the end. */
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
