import type { Json, JsonObject } from '../../../shared/json.ts';
import { compiled } from '../../../shared/schema/check.ts';
import type { Space } from '../../environments/core/space.ts';
import { jsonSchema } from '../../environments/core/space-documents.ts';

/** Says what is wrong with the type of an action, or undefined. Values of the right type are the environment's to judge. */
export type ActionCheck = (action: Json) => string | undefined;

/** The check of a space, made once. */
export function actionCheck(space: Space): ActionCheck {
  switch (space.type) {
    case 'Discrete':
      return action =>
        typeof action === 'string' || typeof action === 'number'
          ? undefined
          : `the action must be an integer id or a name, got ${kind(action)}`;
    case 'Text':
      return action =>
        typeof action === 'string' ? undefined : `the action must be a string, got ${kind(action)}`;
    case 'Dict': {
      const checks = Object.entries(space.spaces).map(([name, inner]) => [name, actionCheck(inner)] as const);
      const names = new Set(checks.map(([name]) => name));
      return action => {
        if (typeof action !== 'object' || action === null || Array.isArray(action)) {
          return `the action must be an object with ${[...names].join(', ')}, got ${kind(action)}`;
        }
        const fields = action as JsonObject;
        const unknown = Object.keys(fields).find(name => !names.has(name));
        if (unknown !== undefined) {
          return `the action has the unknown field "${unknown}"; it takes ${[...names].join(', ')}`;
        }
        for (const [name, check] of checks) {
          if (!Object.hasOwn(fields, name)) return `the action lacks the field "${name}"`;
          const fault = check(fields[name]);
          if (fault) return `field "${name}": ${fault}`;
        }
        return undefined;
      };
    }
    default: {
      const { check, errors } = compiled(jsonSchema(space));
      return action => {
        if (check(action)) return undefined;
        const [error] = errors(action);
        return `the action ${error.instancePath || 'itself'} ${error.message}`;
      };
    }
  }
}

function kind(value: Json): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}
