import type { Json } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { chooseRecord, partOf, pick } from '../core/datasets/choose.ts';
import { InvalidOptions } from '../core/environment.ts';
import { tooManyTests } from './ceilings.ts';
import type { DeepCoderConfig, DeepCoderOptions } from './config.ts';
import { readTask } from './records.ts';
import { DEEPEST_VALUE, isDeeperThan, TASKS, type Task, type Test } from './tasks.ts';

/**
 * The task of an episode: pinned, named, from a data file, or one of the shipped.
 * @throws InvalidOptions, InvalidConfig
 */
export async function chooseTask(
  { data, split }: DeepCoderConfig,
  rng: Random,
  { name, index, statement, entry, tests }: DeepCoderOptions,
): Promise<Task> {
  if (statement !== undefined || tests) return pinnedTask(statement, entry, tests);
  if (entry !== undefined) throw new InvalidOptions('/entry', 'entry needs a statement and tests with it');
  if (name !== undefined) return TASKS.find(task => task.name === name) as Task;
  const key = (task: Task) => task.statement;
  if (data !== undefined) return chooseRecord({ path: data, read: readTask, split, key, index }, rng);
  return pick(partOf(TASKS, split, key), index, rng);
}

function pinnedTask(
  statement: DeepCoderOptions['statement'],
  entry: string | undefined,
  tests: DeepCoderOptions['tests'],
): Task {
  if (statement === undefined)
    throw new InvalidOptions('/statement', 'tests need the statement that they belong to');
  if (!tests) throw new InvalidOptions('/tests', 'the statement needs its tests with it');
  const fault = tooManyTests(tests.length);
  if (fault !== undefined) throw new InvalidOptions('/tests', fault);
  const list = tests.map((test, index): Test => {
    if ('input' in test !== (entry === undefined)) {
      throw new InvalidOptions(
        `/tests/${index}`,
        entry === undefined ? 'needs input and output' : 'needs arguments and result',
      );
    }
    if ('input' in test) return { kind: 'stdin', input: test.input, output: test.output };
    requireShallow(`/tests/${index}/arguments`, test.arguments);
    requireShallow(`/tests/${index}/result`, test.result);
    return { kind: 'call', arguments: test.arguments, result: test.result };
  });
  return { name: '', statement, starter: '', entry: entry ?? null, tests: list, solution: '' };
}

function requireShallow(pointer: string, value: Json): void {
  if (!isDeeperThan(value, DEEPEST_VALUE)) return;
  throw new InvalidOptions(pointer, `is nested deeper than ${DEEPEST_VALUE} levels`);
}
