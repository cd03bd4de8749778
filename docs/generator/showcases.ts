import type { AnyEnvironment } from '../../env-server/environments/core/environment.ts';
import type { Showcase } from '../../site/playground/environments/environments-view.ts';
import { episodeOf } from './figures.ts';
import type { EnvironmentMeasurement } from './measure.ts';

/** Path of the episodes and figures of the page about environments, from the repository's root. */
export const SHOWCASES = 'site/playground/environments/showcases.json';
/** Frames of an episode, and characters of a text or an action. */
const MAX_FRAMES = 14;
const MAX_TEXT_LENGTH = 1200;
const MAX_ACTION_LENGTH = 80;

/** An episode of the best policy of each environment, and how its policies do. */
export async function showcases(
  environments: readonly AnyEnvironment[],
  measured: { readonly [id: string]: EnvironmentMeasurement },
): Promise<string> {
  const entries: [string, Showcase][] = [];
  for (const environment of environments) {
    const { id } = environment.spec;
    const { policy, frames } = await episodeOf(environment);
    const references = Object.entries(measured[id].policies).map(([name, { success, mean_return }]) => ({
      name,
      success,
      mean_return,
    }));
    entries.push([
      id,
      {
        references: references.sort((a, b) => Number(a.name !== 'random') - Number(b.name !== 'random')),
        policy,
        frames: frames.slice(0, MAX_FRAMES).map(({ structured, text, step }) => ({
          structured,
          text: text.slice(0, MAX_TEXT_LENGTH),
          ...(step && { action: step.action.slice(0, MAX_ACTION_LENGTH) }),
        })),
      },
    ]);
  }
  const lines = entries.map(([id, showcase]) => `${JSON.stringify(id)}: ${JSON.stringify(showcase)}`);
  return `{\n${lines.join(',\n')}\n}\n`;
}
