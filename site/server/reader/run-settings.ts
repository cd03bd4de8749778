import { attempted } from '../../../shared/json.ts';
import { RecentMap, remembered } from '../../../shared/remembered.ts';
import { withoutCredentials } from '../../../shared/text.ts';
import { parseYaml } from '../../../shared/yaml.ts';
import { resolvedKey } from '../../compute/run-query.ts';
import { flatSettings, flattened, type SettingValue } from '../../compute/settings-text.ts';
import { type FoundRun, mapped, readConfig } from './run-folders.ts';

/** Different keys of all runs that are remembered. */
const MAX_KEYS = 5000;
/** Names of queries that are remembered with the key that each means. */
const MAX_NAMES = 200;
/** Settings of one run that are remembered; the trainer writes about 260. */
const MAX_SETTINGS = 2000;

type Settings = Map<string, SettingValue>;

/** Settings that differ from those of the first run that was read; undefined where a run lacks one. */
type Difference = Map<string, SettingValue | undefined>;

/** Settings of all runs, read when the first query needs them; a sweep's runs share what they have in common. */
export class RunSettings {
  readonly #known = new Map<string, { readonly changedMs: number; readonly different: Difference }>();
  readonly #keys = new Set<string>();
  #base: Settings | undefined;
  #resolved = new RecentMap<string, string | null>(MAX_NAMES);

  /** Reads the settings of these runs, unless they are known. */
  async read(runs: readonly FoundRun[]): Promise<void> {
    await mapped(runs, async run => {
      if (this.#known.get(run.id)?.changedMs === run.changedMs) return;
      const all = settingsOf(await readConfig(run));
      const settings = all.size > MAX_SETTINGS ? new Map([...all].slice(0, MAX_SETTINGS)) : all;
      for (const key of settings.keys()) {
        if (this.#keys.size >= MAX_KEYS || this.#keys.has(key)) continue;
        this.#keys.add(key);
        this.#resolved = new RecentMap(MAX_NAMES);
      }
      this.#base ??= settings;
      this.#known.set(run.id, { changedMs: run.changedMs, different: difference(this.#base, settings) });
    });
  }

  /** A setting of a run that was read. @param name its key, or the end of it after a dot */
  value(id: string, name: string): SettingValue | undefined {
    const key = remembered(this.#resolved, name, () => resolvedKey(this.#keys, name) ?? null);
    const known = this.#known.get(id);
    if (key === null || !known) return undefined;
    return known.different.has(key) ? known.different.get(key) : this.#base?.get(key);
  }

  /** Keys of settings, those first in which the runs that were read differ. */
  keys(): string[] {
    const differing = new Set([...this.#known.values()].flatMap(({ different }) => [...different.keys()]));
    return [...this.#keys].sort(
      (a, b) => Number(differing.has(b)) - Number(differing.has(a)) || a.localeCompare(b),
    );
  }

  /** All settings of a run that was read. */
  all(id: string): { readonly [key: string]: SettingValue } {
    const entries = [...this.#keys].map(key => [key, this.value(id, key)] as const);
    return Object.fromEntries(
      entries.filter((entry): entry is [string, SettingValue] => entry[1] !== undefined),
    );
  }

  forget(id: string): void {
    this.#known.delete(id);
  }
}

function settingsOf(text: string | undefined): Settings {
  if (text === undefined) return new Map();
  const shown = withoutCredentials(text);
  const settings = flatSettings(shown);
  return settings ?? new Map(attempted(() => flattened(parseYaml(shown))));
}

function difference(base: Settings, settings: Settings): Difference {
  const different: Difference = new Map();
  for (const [key, value] of settings)
    if (base.get(key) !== value || !base.has(key)) different.set(key, value);
  for (const key of base.keys()) if (!settings.has(key)) different.set(key, undefined);
  return different;
}
