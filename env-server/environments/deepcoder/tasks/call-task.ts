import type { Json } from '../../../../shared/json.ts';
import type { Task } from './task.ts';

/**
 * A task with tests that call a function. Expected results come from a function here, not from the solution.
 * @param parameters of the Python function, e.g. `nums: list[int], k: int`
 * @param right gives the expected result of each input
 */
export function callTask(
  name: string,
  parameters: string,
  statement: string,
  solution: string,
  right: (...given: never[]) => Json,
  inputs: readonly (readonly Json[])[],
): Task {
  const head = `def ${name}(${parameters}):`;
  return {
    name,
    statement: `${statement}\n\nWrite a function \`${head.slice(4, -1)}\` that returns the answer.`,
    starter: head,
    entry: name,
    tests: inputs.map(given => ({
      kind: 'call',
      arguments: given,
      result: (right as (...given: readonly Json[]) => Json)(...given),
    })),
    solution: `${head}\n${solution
      .trim()
      .split('\n')
      .map(line => `    ${line}`)
      .join('\n')}\n`,
  };
}
