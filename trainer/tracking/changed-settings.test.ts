import t from 'tap';
import { settingsOf } from '../config/settings.test-data.ts';
import { changedSettings } from './run-status.ts';

t.test(
  'settings that differ from their defaults are named, whole sections that are null by default too',
  async t => {
    const usual = changedSettings(settingsOf());
    const changed = changedSettings(
      settingsOf({
        rollout: { group_size: 7 },
        loss: { kl: { coefficient: 0.1 } },
        optimizer: { learning_rate: 0.123 },
      }),
    );
    const more = changed.filter(key => !usual.includes(key));
    t.ok(more.includes('optimizer.learning_rate'), String(more));
    t.ok(changed.includes('rollout.group_size'), String(changed));
    t.notOk(usual.includes('optimizer.learning_rate'));
    t.ok(
      more.some(key => key === 'loss.kl' || key.startsWith('loss.kl.')),
      String(more),
    );
    t.notOk(
      [...usual, ...changed].some(key => key.startsWith('tags') || key.startsWith('servers')),
      'environments and servers are described elsewhere',
    );
    t.equal(new Set(changed).size, changed.length);
  },
);
