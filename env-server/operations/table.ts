import { describeEnvironment, getEnvironment, listEnvironments } from './environments/catalog.ts';
import {
  checkOperation,
  getDefinition,
  listAudit,
  register,
  remove,
  replace,
} from './environments/registrations.ts';
import type { Operation } from './operation.ts';
import { clone, close, create, get, list, reset, restore, snapshot } from './sessions/lifecycle.ts';
import { reference, step, validActions } from './sessions/step.ts';
import { render, replay, trajectory } from './sessions/trajectories.ts';

/** All operations; every transport offers all of them. */
export const OPERATIONS: readonly Operation[] = [
  create,
  get,
  list,
  reset,
  step,
  render,
  snapshot,
  restore,
  clone,
  trajectory,
  replay,
  reference,
  validActions,
  close,
  listEnvironments,
  getEnvironment,
  describeEnvironment,
  register,
  replace,
  remove,
  checkOperation,
  getDefinition,
  listAudit,
];
