import { Compile } from 'typebox/schema';
import type { Schema } from '../../test/json-schema.test-data.ts';

interface MediaType {
  readonly schema: Schema;
  readonly examples?: { readonly [name: string]: { readonly value: unknown } };
}

interface MediaContent {
  readonly [type: string]: MediaType;
}

interface OperationDocument {
  readonly operationId: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: MediaContent };
  readonly responses: { readonly [status: string]: { readonly content?: MediaContent } };
}

export interface OpenApi {
  readonly paths: { readonly [path: string]: { readonly [method: string]: OperationDocument } };
  readonly components: { readonly schemas: { readonly [name: string]: Schema } };
}

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required: boolean;
  readonly schema: Schema;
}

/** One route as the document has it. */
export interface Route {
  readonly name: string;
  readonly method: string;
  /** With `{name}` for parameters. */
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: Schema | undefined;
  readonly bodyRequired: boolean;
  readonly examples: readonly unknown[];
  readonly status: number;
  /** Schemas of success by content type, without its parameters. */
  readonly success: { readonly [type: string]: Schema };
  /** Codes of the problems it may answer with. */
  readonly codes: ReadonlySet<string>;
}

/** Complaints about a value, none where it fits. */
export type Check = (value: unknown) => string | undefined;

/** Lines of these are records of a schema that OpenAPI has no place for. */
const RECORDS: { readonly [type: string]: string } = { 'application/jsonl': 'TrajectoryRecord' };
const PROBLEM_TYPE = 'application/problem+json';

/** What a server promises in its OpenAPI document, ready to be held against what it does. */
export class Contract {
  readonly routes: readonly Route[];
  /** Items of batches, and frames without their `id`, by operation. */
  readonly items: ReadonlyMap<string, Schema>;
  readonly #document: OpenApi;
  readonly #checks = new Map<Schema, Check>();

  constructor(document: OpenApi) {
    this.#document = document;
    this.routes = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => routeOf(path, method, operation)),
    );
    this.items = new Map(
      (this.component('BatchItem').oneOf ?? []).map(reference => {
        const item = this.resolve(reference);
        return [String(item.properties?.op.const), item];
      }),
    );
  }

  /** @throws Error for a name that is not there */
  component(name: string): Schema {
    const schema = this.#document.components.schemas[name];
    if (!schema) throw new Error(`the document has no schema ${name}`);
    return schema;
  }

  resolve(schema: Schema): Schema {
    return schema.$ref === undefined
      ? schema
      : this.resolve(this.component(schema.$ref.slice('#/components/schemas/'.length)));
  }

  /** @throws Error for an operation that is not there */
  route(name: string): Route {
    const route = this.routes.find(route => route.name === name);
    if (!route) throw new Error(`the document has no operation ${name}`);
    return route;
  }

  /** Whether a value fits a schema of the document. */
  check(schema: Schema): Check {
    const known = this.#checks.get(schema);
    if (known) return known;
    const validator = Compile({ allOf: [schema], components: this.#document.components });
    const check: Check = value => {
      if (validator.Check(value)) return undefined;
      const [, errors] = validator.Errors(value);
      return errors.map(({ instancePath, message }) => `${instancePath || '/'} ${message}`).join('; ');
    };
    this.#checks.set(schema, check);
    return check;
  }

  /** Whether a value fits a named schema of the document. */
  checkComponent(name: string): Check {
    return this.check(this.component(name));
  }

  /** Whether a text is what a route answers with under this content type. */
  checkSuccess(route: Route, type: string, text: string): string | undefined {
    const schema = route.success[type];
    if (!schema) return `the content type ${type} is not documented`;
    if (type in RECORDS) {
      const check = this.checkComponent(RECORDS[type]);
      return text
        .trimEnd()
        .split('\n')
        .map(line => check(JSON.parse(line)))
        .find(complaint => complaint !== undefined);
    }
    return type === 'application/json' ? this.check(schema)(JSON.parse(text)) : undefined;
  }
}

function routeOf(path: string, method: string, operation: OperationDocument): Route {
  const { default: problem, ...successes } = operation.responses;
  const [[status, success]] = Object.entries(successes);
  const body = operation.requestBody?.content['application/json'];
  const codes = (problem.content?.[PROBLEM_TYPE].schema.allOf ?? []).flatMap(
    ({ properties }) => properties?.code.enum ?? [],
  );
  return {
    name: operation.operationId,
    method: method.toUpperCase(),
    path,
    parameters: operation.parameters ?? [],
    body: body?.schema,
    bodyRequired: operation.requestBody?.required ?? false,
    examples: Object.values(body?.examples ?? {}).map(({ value }) => value),
    status: Number(status),
    success: Object.fromEntries(
      Object.entries(success.content ?? {}).map(([type, { schema }]) => [type, schema]),
    ),
    codes: new Set(codes.map(String)),
  };
}
