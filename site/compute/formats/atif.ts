import type { TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { callOf, contentText, isRow, type Message, promptText, turnOf } from './chat.ts';
import { clip, episodeOf, FormatError, type Row, successOf, type TrajectoryFormat } from './format.ts';

/** The Agent Trajectory Interchange Format of Harbor: `agent/trajectory.json` of a trial, versions 1.x. */
export const ATIF: TrajectoryFormat = {
  name: 'ATIF',
  fields: 'schema_version (ATIF-v1.x), steps',
  recognizes: row => typeof row.schema_version === 'string' && row.schema_version.startsWith('ATIF-v1.'),
  read(row) {
    const { steps, agent, session_id, extra } = row;
    if (!Array.isArray(steps)) throw new FormatError(`\`steps\` is a list of steps, got ${clip(steps)}`);
    const tag = isRow(agent) && typeof agent.name === 'string' ? agent.name : undefined;
    const { turns, task } = turnsIn(steps);
    const reward = isRow(extra) && typeof extra.reward === 'number' ? extra.reward : null;
    return {
      step: 0,
      group: task,
      episode: episodeOf({
        format: 'ATIF',
        turns,
        success: isRow(extra) ? successOf(extra) : null,
        return: reward,
        ...(tag === undefined ? {} : { tag }),
        ...(typeof session_id === 'string' ? { id: session_id } : {}),
      }),
    };
  },
};

/**
 * One turn for each step of the agent; its prompt holds what the system, the user and the tools said since the previous
 * step. The first is the user's message.
 */
function turnsIn(steps: readonly unknown[]): { readonly turns: TurnRecord[]; readonly task: string } {
  const turns: TurnRecord[] = [];
  let before: Message[] = [];
  let task = '';
  for (const [i, step] of steps.entries()) {
    if (!isRow(step) || typeof step.source !== 'string')
      throw new FormatError(
        `\`steps[${i}]\` is a step with a \`source\` and a \`message\`, got ${clip(step)}`,
      );
    const message = messageOf(step);
    if (step.source === 'agent') {
      turns.push(turnOf(promptText(before), message));
      before = [];
    } else {
      before.push(message);
      if (step.source === 'user' && task === '') task = message.text;
    }
    before.push(...observationsOf(step));
  }
  return { turns, task };
}

function messageOf(step: Row): Message {
  const thought = typeof step.reasoning_content === 'string' ? step.reasoning_content : '';
  const text = [thought, contentText(step.message)].filter(part => part !== '').join('\n\n');
  const calls = Array.isArray(step.tool_calls) ? step.tool_calls.map(callOf) : [];
  return { role: String(step.source), text, calls };
}

/** Results of the tools that a step called. */
function observationsOf({ observation }: Row): Message[] {
  const results = isRow(observation) && Array.isArray(observation.results) ? observation.results : [];
  return results
    .filter(isRow)
    .map(({ content }) => ({ role: 'observation', text: contentText(content), calls: [] }));
}
