import t from 'tap';
import { serializerOf } from '../../operations/dispatch/dispatcher.ts';
import { step } from '../../operations/sessions/step.ts';
import { headOfText, LiveResult } from './live-result.ts';

const INFO = { success: false, note: 'a "quoted" line\n' };

t.test('a result and what is left of it in a store have the text that JSON.stringify gives', async t => {
  const serialize = serializerOf(step);
  const head = headOfText('sA', 'sA.1');
  for (const observation of ['P_\n_G', '', 'Straße “7” 🎲', { board: [1, 2] }]) {
    const live = new LiveResult(head, 'sA', 'sA.1', 12, observation, -0.5, false, true, INFO);
    const stored = JSON.parse(JSON.stringify(live));
    t.equal(serialize(live), JSON.stringify(live));
    t.equal(serialize(stored), JSON.stringify(stored));
    t.equal(serialize(stored), serialize(live));
  }
});
