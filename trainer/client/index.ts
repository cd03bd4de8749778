/** The typed client of environment servers: `import { EnvServer } from 'ragen/client'`. */

export type { Operation, OperationInput, OperationResult, Schemas } from './operations.ts';
export type { RetryPolicy } from './retry.ts';
export * from './retry.ts';
export { EnvServer, type EnvServerSettings } from './server.ts';
export { ServerPool } from './servers.ts';
export {
  type Act,
  type EpisodeStep,
  type OpenEpisode,
  rollout,
  type VectorRolloutInput,
  type VectorStep,
} from './vector-rollout.ts';
