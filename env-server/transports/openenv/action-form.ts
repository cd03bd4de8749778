import type { Json, JsonObject } from '../../../shared/json.ts';
import { jsonSchema } from '../../environments/core/space-documents.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import { extras, InvalidMessage, missing } from './faults.ts';

/** Field of an action that is a text or a number; OpenEnv's actions are always objects. */
const ACTION = 'action';
/** Field that typed clients always send; it says nothing to an environment. */
const METADATA = 'metadata';

/** Form of the actions of an environment in OpenEnv. */
export interface ActionForm {
  /** JSON Schema of an action's fields. */
  readonly schema: JsonObject;
  /** The action is one field; otherwise its fields are the fields. */
  readonly wrapped: boolean;
  /**
   * The environment's own action.
   * @throws InvalidMessage for a field that is missing or unknown
   */
  read(fields: JsonObject): Json;
}

const forms = new WeakMap<Variant, ActionForm>();

/**
 * The form of a variant's actions: an action that is an object gives its own fields, any other one is in the field
 * `action`. `metadata` is accepted and left out, unless it is a field of the action.
 */
export function actionForm(variant: Variant): ActionForm {
  const known = forms.get(variant);
  if (known) return known;
  const schema = jsonSchema(variant.environment.spec.actionSpace);
  // OpenEnv's clients take a schema with the title `Action` for that of a server with MCP tools alone.
  const title = `${variant.environment.spec.title} action`;
  const form = schema.type === 'object' ? ownFields(title, schema) : oneField(title, schema, variant);
  forms.set(variant, form);
  return form;
}

const METADATA_SCHEMA: JsonObject = {
  type: 'object',
  description: 'Accepted and left out.',
  additionalProperties: true,
};

function ownFields(title: string, schema: JsonObject): ActionForm {
  const properties = (schema.properties ?? {}) as JsonObject;
  if (Object.hasOwn(properties, METADATA)) {
    return { schema: { title, ...schema }, wrapped: false, read: fields => fields };
  }
  return {
    schema: {
      title,
      ...schema,
      properties: { ...properties, [METADATA]: METADATA_SCHEMA },
    },
    wrapped: false,
    read({ [METADATA]: _left, ...action }) {
      return action;
    },
  };
}

function oneField(title: string, schema: JsonObject, { environment, config }: Variant): ActionForm {
  const { actionFormat, actions } = environment.describe(config);
  const description = actionFormat ?? (actions && `One of ${actions.join(', ')}.`);
  return {
    schema: {
      title,
      type: 'object',
      required: [ACTION],
      properties: {
        [ACTION]: { ...schema, ...(description !== undefined && { description }) },
        [METADATA]: METADATA_SCHEMA,
      },
      additionalProperties: false,
      examples: [{ [ACTION]: environment.spec.exampleAction }],
    },
    wrapped: true,
    read(fields) {
      const faults = extras(fields, [ACTION, METADATA]);
      if (!Object.hasOwn(fields, ACTION)) faults.unshift(missing([ACTION]));
      if (faults.length > 0) throw new InvalidMessage(faults);
      return fields[ACTION];
    },
  };
}
