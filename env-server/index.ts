/** The environment server in a program: `import { createApp, createRegistry } from 'ragen/env-server'`. */
export { type Static, Type } from 'typebox';
export type { Json, JsonObject } from '../shared/json.ts';
export { VERSION } from '../shared/program.ts';
export { Random } from '../shared/random.ts';
export { type App, type AppParts, createApp } from './app.ts';
export { DEFAULT_SETTINGS, type Settings } from './config/settings.ts';
export type {
  AnyEnvironment,
  Environment,
  ObservationFormat,
  Transition,
} from './environments/core/environment.ts';
export * from './environments/core/spaces.ts';
export { BUILT_IN, createRegistry, type Registry, UnknownEnvironment } from './environments/registry.ts';
export { Problem } from './problems.ts';
