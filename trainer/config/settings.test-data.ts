import { validateConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { RunSettings } from './settings.ts';

/** Settings for tests: one tag, `Lake`, and defaults but for what is given. */
export function settingsOf(over: { readonly [section: string]: Json } = {}): RunSettings {
  return validateConfig(
    { tags: { Lake: { env_id: 'FrozenLake-v0' } }, train_tags: ['Lake'], ...over },
    RunSettings,
  );
}
