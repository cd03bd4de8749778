import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import {
  OpenEnvDefinition,
  OrsDefinition,
  RagenDefinition,
  type RemoteDefinition,
  WebhookDefinition,
} from '../remote/definition.ts';
import { ScriptDefinition } from '../script/definition.ts';
import { TabularDefinition } from '../tabular/definition.ts';
import { about, bag, NAME_LENGTH, Wrappers } from './definition-parts.ts';

export const ComposedDefinition = closed(
  {
    kind: Type.Literal('composed'),
    title: Type.Optional(about.title),
    description: about.description,
    tags: about.tags,
    env_id: Type.String({
      minLength: 1,
      maxLength: NAME_LENGTH,
      description: 'The environment to start from, built in or registered.',
    }),
    config: Type.Optional(
      bag('Values that become the defaults of its configuration; `preset` names a preset to start from.'),
    ),
    wrappers: Type.Optional(Wrappers),
  },
  { title: 'ComposedDefinition', description: 'An existing environment with other defaults and wrappers.' },
);
export type ComposedDefinition = Static<typeof ComposedDefinition>;

export type Definition = TabularDefinition | ScriptDefinition | RemoteDefinition | ComposedDefinition;

export const KINDS = [
  'tabular',
  'script',
  'remote',
  'composed',
] as const satisfies readonly Definition['kind'][];
export const PROTOCOLS = [
  'webhook',
  'ragen',
  'openenv',
  'ors',
] as const satisfies readonly RemoteDefinition['protocol'][];

/** Schemas of definitions by kind, remote ones by protocol. */
export const DEFINITIONS = {
  tabular: TabularDefinition,
  script: ScriptDefinition,
  remote: {
    webhook: WebhookDefinition,
    ragen: RagenDefinition,
    openenv: OpenEnvDefinition,
    ors: OrsDefinition,
  },
  composed: ComposedDefinition,
} as const;

export const Definition = Type.Unsafe<Definition>(
  Type.Union(
    [
      TabularDefinition,
      ScriptDefinition,
      WebhookDefinition,
      RagenDefinition,
      OpenEnvDefinition,
      OrsDefinition,
      ComposedDefinition,
    ],
    { title: 'Definition', description: 'A custom environment; `kind` says how it is made.' },
  ),
);
