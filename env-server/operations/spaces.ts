import type { JsonObject } from '../../shared/json.ts';
import type { Space } from '../../shared/spaces.ts';

/** JSON Schema of the values of a space. */
export function jsonSchema(space: Space): JsonObject {
  switch (space.type) {
    case 'Discrete': {
      const start = space.start ?? 0;
      const id = { type: 'integer', minimum: start, maximum: start + space.n - 1 };
      return space.names ? { anyOf: [id, { type: 'string', enum: space.names }] } : id;
    }
    case 'Text':
      return {
        type: 'string',
        ...(space.minLength === undefined ? {} : { minLength: space.minLength }),
        maxLength: space.maxLength,
        ...(space.pattern === undefined ? {} : { pattern: space.pattern }),
      };
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

/** Type and parameters of the Gymnasium space; `Json` has no counterpart there and keeps its own name. */
export function gymnasiumSpace(space: Space): JsonObject {
  switch (space.type) {
    case 'Discrete':
      return { type: 'Discrete', n: space.n, start: space.start ?? 0 };
    case 'Text':
      return { type: 'Text', min_length: space.minLength ?? 0, max_length: space.maxLength };
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
