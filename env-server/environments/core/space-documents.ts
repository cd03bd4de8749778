import type { JsonObject } from '../../../shared/json.ts';
import type { Space } from './spaces.ts';

/** JSON Schema of a space's values. */
export function jsonSchema(space: Space): JsonObject {
  switch (space.type) {
    case 'Discrete': {
      const start = space.start ?? 0;
      const id = { type: 'integer', minimum: start, maximum: start + space.n - 1 };
      return space.names ? { anyOf: [id, { type: 'string', enum: space.names }] } : id;
    }
    case 'Text':
      if (space.values) return { type: 'string', enum: space.values };
      return {
        type: 'string',
        ...(space.minLength === undefined ? {} : { minLength: space.minLength }),
        maxLength: space.maxLength,
        ...(space.pattern === undefined ? {} : { pattern: space.pattern }),
      };
    case 'Box': {
      const { low, high, dtype } = space;
      const element = {
        type: dtype === 'float64' ? 'number' : 'integer',
        ...(low !== null && { minimum: low }),
        ...(high !== null && { maximum: high }),
      };
      return arrays(space.shape, element);
    }
    case 'MultiBinary':
      return arrays(space.shape, { type: 'integer', minimum: 0, maximum: 1 });
    case 'MultiDiscrete':
      return fixedList(space.nvec.map(n => ({ type: 'integer', minimum: 0, maximum: n - 1 })));
    case 'Boolean':
      return { type: 'boolean' };
    case 'Nullable':
      return { anyOf: [jsonSchema(space.space), { type: 'null' }] };
    case 'Tuple':
      return fixedList(space.spaces.map(jsonSchema));
    case 'Sequence':
      return { type: 'array', items: jsonSchema(space.space) };
    case 'Dict': {
      const names = Object.keys(space.spaces);
      return {
        type: 'object',
        required: names,
        properties: Object.fromEntries(names.map(name => [name, jsonSchema(space.spaces[name])])),
        additionalProperties: false,
      };
    }
    case 'Json':
      return space.schema;
  }
}

/** Nested lists of the dimensions in `shape`, from the outside in. */
function arrays(shape: readonly number[], element: JsonObject): JsonObject {
  return shape.reduceRight<JsonObject>(
    (items, length) => ({ type: 'array', items, minItems: length, maxItems: length }),
    element,
  );
}

function fixedList(prefixItems: readonly JsonObject[]): JsonObject {
  const { length } = prefixItems;
  return { type: 'array', prefixItems: [...prefixItems], minItems: length, maxItems: length };
}

/**
 * Type and parameters of the Gymnasium space; `Json` has no counterpart there and keeps its name. A null bound means
 * unbounded, and a null charset means any character.
 */
export function gymnasiumSpace(space: Space): JsonObject {
  switch (space.type) {
    case 'Discrete':
      return { type: 'Discrete', n: space.n, start: space.start ?? 0 };
    case 'Text':
      return {
        type: 'Text',
        min_length: space.minLength ?? 0,
        max_length: space.maxLength,
        charset: space.charset ?? null,
      };
    case 'Box': {
      const { low, high, shape, dtype } = space;
      return { type: 'Box', low, high, shape, dtype };
    }
    case 'MultiDiscrete':
      return { type: 'MultiDiscrete', nvec: space.nvec };
    case 'MultiBinary':
      return { type: 'MultiBinary', n: space.shape };
    case 'Boolean':
      return { type: 'Discrete', n: 2, start: 0 };
    case 'Nullable':
      return {
        type: 'OneOf',
        spaces: [{ type: 'Discrete', n: 1, start: 0 }, gymnasiumSpace(space.space)],
      };
    case 'Tuple':
      return { type: 'Tuple', spaces: space.spaces.map(gymnasiumSpace) };
    case 'Sequence':
      return { type: 'Sequence', space: gymnasiumSpace(space.space), stack: false };
    case 'Dict':
      return {
        type: 'Dict',
        spaces: Object.fromEntries(
          Object.entries(space.spaces).map(([name, inner]) => [name, gymnasiumSpace(inner)]),
        ),
      };
    case 'Json':
      return { type: 'Json' };
  }
}
