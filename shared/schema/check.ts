import { createRequire } from 'node:module';
import type { TSchema } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';

/** The validator, loaded for the first check: a server that has just started needs none. */
let library: typeof import('typebox/schema') | undefined;
function loaded(): typeof import('typebox/schema') {
  library ??= createRequire(import.meta.url)('typebox/schema') as typeof import('typebox/schema');
  return library;
}

/** A check that is compiled on first use. */
export interface CompiledCheck {
  check(value: unknown): boolean;
  /** The faults of a value; empty when it passes. */
  errors(value: unknown): readonly TLocalizedValidationError[];
}

/** A compiled check for many values, much faster than {@link fits}. */
export function compiled(schema: TSchema): CompiledCheck {
  let validator: import('typebox/schema').Validator | undefined;
  const compile = () => {
    validator ??= loaded().Compile(schema) as import('typebox/schema').Validator;
    return validator;
  };
  return {
    check: value => compile().Check(value),
    errors: value => compile().Errors(value)[1],
  };
}

/** True if a value fits a schema. */
export function fits(schema: TSchema, value: unknown): boolean {
  return loaded().Check(schema, value);
}

/** The faults of a value. */
export function errorsOf(schema: TSchema, value: unknown): readonly TLocalizedValidationError[] {
  return loaded().Errors(schema, value)[1];
}
