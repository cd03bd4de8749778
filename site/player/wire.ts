import type { components } from '../../openapi/schema.d.ts';
import type { Json } from '../../shared/json.ts';

/** Types of everything sent or received, as in the server's contract. */
export type Schemas = components['schemas'];

export type Environment = Schemas['Environment'];
export type EnvironmentSummary = Schemas['EnvironmentSummary'];
export type Session = Schemas['Session'];
export type SessionDetail = Schemas['SessionDetail'];
export type Replay = Schemas['Replay'];
export type StepResult = Schemas['StepResult'];
export type TrajectoryRecord = Schemas['TrajectoryRecord'];
export type Observation = Schemas['Observation'];
export type Reseed = Schemas['Reseed'];
export type WrapperChoice = Schemas['WrapperChoice'];
export type Registration = Schemas['Registration'];

/** A session as the WebSocket operation `watch` sends it. */
export type SessionCard = Schemas['SessionCard'];

/** A taken step. */
export interface PlayedStep {
  readonly action: Json;
  readonly observation: Observation;
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly info: Schemas['Info'];
}
