import t from 'tap';
import { step } from './step.ts';

const INFO = { success: false, note: 'a "quoted" line\n' };

t.test('a result has the text that JSON.stringify gives', async t => {
  for (const info of [INFO, Object.freeze({ ...INFO })]) {
    for (const observation of ['P_\n_G', '', 'Straße “7” 🎲', { board: [1, 2] }]) {
      for (const [reward, terminated] of [
        [-0.5, false],
        [1e21, true],
      ] as const) {
        const ids = { session_id: 'sA', episode_id: 'sA.1' };
        const outcome = { reward, terminated, truncated: true, info };
        for (const key of [{}, { state_key: '0123456789abcdef' }]) {
          const result = { ...ids, step: 12, observation, ...key, ...outcome };
          t.equal(step.serialize?.(result), JSON.stringify(result));
        }
      }
    }
  }
});
