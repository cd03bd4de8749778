import { checkOperation } from './check.ts';
import { clone } from './clone.ts';
import { close } from './close.ts';
import { create } from './create.ts';
import { describeEnvironment } from './describe-environment.ts';
import { get } from './get.ts';
import { getDefinition } from './get-definition.ts';
import { getEnvironment } from './get-environment.ts';
import { list } from './list.ts';
import { listEnvironments } from './list-environments.ts';
import type { Operation } from './operation.ts';
import { reference } from './reference.ts';
import { register } from './register.ts';
import { remove } from './remove.ts';
import { render } from './render.ts';
import { replace } from './replace.ts';
import { reset } from './reset.ts';
import { restore } from './restore.ts';
import { snapshot } from './snapshot.ts';
import { step } from './step.ts';
import { trajectory } from './trajectory.ts';

/** Every operation there is; each door offers all of them. */
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
  reference,
  close,
  listEnvironments,
  getEnvironment,
  describeEnvironment,
  register,
  replace,
  remove,
  checkOperation,
  getDefinition,
];
