import type { Ends } from '../../environments/core/ends.ts';
import type { EnvironmentSpec } from '../../environments/core/environment.ts';

const VERSION = /-v(\d+)$/;

interface About {
  readonly title: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly ends?: Ends;
}

/** The parts of a specification that every kind of custom environment has. */
export function aboutSpec(
  envId: string,
  kind: string,
  { title, description, tags = [], ends }: About,
  summary: string,
): Pick<EnvironmentSpec, 'id' | 'title' | 'description' | 'tags' | 'history' | 'ends'> {
  const version = Number(VERSION.exec(envId)?.[1] ?? 0);
  return {
    id: envId,
    title,
    description: description ?? summary,
    tags: [...new Set([kind, ...tags])],
    history: [{ version, change: 'Registered by its owner.' }],
    ...(ends && { ends }),
  };
}
