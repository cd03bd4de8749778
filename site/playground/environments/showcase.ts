import type { Json } from '../../../shared/json.ts';

/** A policy's measured results under the default configuration. */
export interface Reference {
  readonly name: string;
  /** Share of episodes that ended in success. */
  readonly success: number;
  readonly mean_return: number;
}

/** A moment of an episode. */
interface ShowcaseFrame {
  readonly structured: Json;
  readonly text: string;
  readonly action?: string;
}

/** Preview of a built-in environment: an episode of its best policy, and the results of policies. */
export interface Showcase {
  readonly references: readonly Reference[];
  readonly policy: string;
  readonly frames: readonly ShowcaseFrame[];
}

export type Showcases = { readonly [envId: string]: Showcase };

let loading: Promise<Showcases> | undefined;

/** The showcases of the built-in environments, made by `npm run docs`; empty where they cannot be loaded. */
export function showcases(): Promise<Showcases> {
  loading ??= fetch(new URL('./showcases.json', import.meta.url))
    .then(response => (response.ok ? response.json() : {}))
    .catch(() => {
      loading = undefined;
      return {};
    });
  return loading;
}

/** Policies to compare a return with; empty for an environment without measurements. */
export async function referencesOf(envId: string): Promise<readonly Reference[]> {
  return (await showcases())[envId]?.references ?? [];
}
