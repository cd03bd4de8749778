import t from 'tap';
import { planSlots } from '../compiled-program.ts';
import type { Program } from './program.ts';
import type { DeviceValue, KernelDispatch } from './step.ts';

const value = (id: number, length = 100): DeviceValue => ({ id, length });

function program(
  steps: readonly [reads: DeviceValue[], writes: DeviceValue[]][],
  parts: Partial<Program>,
): Program {
  return {
    steps: steps.map(([reads, writes]) => ({ reads, writes }) as unknown as KernelDispatch),
    inputs: new Map(),
    parameters: new Map(),
    outputs: new Map(),
    constants: new Map(),
    ...parts,
  };
}

t.test('arrays share a slot when one is read for the last time before the other is written', async t => {
  const [x, a, b, c] = [value(0), value(1), value(2), value(3)];
  const chain = program(
    [
      [[x], [a]],
      [[a], [b]],
      [[b], [c]],
    ],
    { inputs: new Map([['x', x]]), outputs: new Map([['c', c]]) },
  );
  const { slots, slotOf } = planSlots(chain);
  t.strictSame(slots, [100, 100]);
  t.equal(slotOf.get(c), slotOf.get(a));
  t.not(slotOf.get(b), slotOf.get(a));
  t.notOk(slotOf.has(x));
});

t.test('outputs keep their slot, and a large slot is not spent on a small array', async t => {
  const [x, a, b, c] = [value(0), value(1), value(2), value(3, 10)];
  const plan = planSlots(
    program(
      [
        [[x], [a]],
        [[x], [b]],
        [[b], [c]],
        [[c], [value(4)]],
      ],
      { inputs: new Map([['x', x]]), outputs: new Map([['a', a]]) },
    ),
  );
  t.strictSame(plan.slots, [100, 100, 10]);
  t.equal(plan.slotOf.get(b), 1);
});
