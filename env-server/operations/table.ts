import { checkOperation } from './environments/check.ts';
import { describeEnvironment } from './environments/describe-environment.ts';
import { getDefinition } from './environments/get-definition.ts';
import { getEnvironment } from './environments/get-environment.ts';
import { listAudit } from './environments/list-audit.ts';
import { listEnvironments } from './environments/list-environments.ts';
import { register } from './environments/register.ts';
import { remove } from './environments/remove.ts';
import { replace } from './environments/replace.ts';
import type { Operation } from './operation.ts';
import { clone } from './sessions/clone.ts';
import { close } from './sessions/close.ts';
import { create } from './sessions/create.ts';
import { get } from './sessions/get.ts';
import { list } from './sessions/list.ts';
import { reference } from './sessions/reference.ts';
import { render } from './sessions/render.ts';
import { replay } from './sessions/replay.ts';
import { reset } from './sessions/reset.ts';
import { restore } from './sessions/restore.ts';
import { snapshot } from './sessions/snapshot.ts';
import { step } from './sessions/step.ts';
import { trajectory } from './sessions/trajectory.ts';
import { validActions } from './sessions/valid-actions.ts';

/** All operations; each transport offers all of them. */
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
