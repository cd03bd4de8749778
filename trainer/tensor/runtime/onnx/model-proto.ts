import protobuf from 'protobufjs';

/** Element type codes of ONNX's TensorProto. */
export const TENSOR_TYPE = {
  float32: 1,
  uint8: 2,
  int8: 3,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
} as const;

/** Attribute kinds of ONNX's AttributeProto. */
const ATTRIBUTE_TYPE = { float: 1, int: 2, string: 3, ints: 7 } as const;

/** The messages of onnx.proto that we write, with ONNX's own field numbers (github.com/onnx/onnx, onnx.proto). */
const root = protobuf.Root.fromJSON({
  nested: {
    OperatorSetIdProto: { fields: { domain: { type: 'string', id: 1 }, version: { type: 'int64', id: 2 } } },
    TensorProto: {
      fields: {
        dims: { rule: 'repeated', type: 'int64', id: 1 },
        dataType: { type: 'int32', id: 2 },
        name: { type: 'string', id: 8 },
        rawData: { type: 'bytes', id: 9 },
      },
    },
    Dimension: { fields: { dimValue: { type: 'int64', id: 1 }, dimParam: { type: 'string', id: 2 } } },
    TensorShapeProto: { fields: { dim: { rule: 'repeated', type: 'Dimension', id: 1 } } },
    TensorTypeProto: {
      fields: { elemType: { type: 'int32', id: 1 }, shape: { type: 'TensorShapeProto', id: 2 } },
    },
    TypeProto: { fields: { tensorType: { type: 'TensorTypeProto', id: 1 } } },
    ValueInfoProto: { fields: { name: { type: 'string', id: 1 }, type: { type: 'TypeProto', id: 2 } } },
    AttributeProto: {
      fields: {
        name: { type: 'string', id: 1 },
        f: { type: 'float', id: 2 },
        i: { type: 'int64', id: 3 },
        s: { type: 'bytes', id: 4 },
        ints: { rule: 'repeated', type: 'int64', id: 8 },
        type: { type: 'int32', id: 20 },
      },
    },
    NodeProto: {
      fields: {
        input: { rule: 'repeated', type: 'string', id: 1 },
        output: { rule: 'repeated', type: 'string', id: 2 },
        name: { type: 'string', id: 3 },
        opType: { type: 'string', id: 4 },
        attribute: { rule: 'repeated', type: 'AttributeProto', id: 5 },
        domain: { type: 'string', id: 7 },
      },
    },
    GraphProto: {
      fields: {
        node: { rule: 'repeated', type: 'NodeProto', id: 1 },
        name: { type: 'string', id: 2 },
        initializer: { rule: 'repeated', type: 'TensorProto', id: 5 },
        input: { rule: 'repeated', type: 'ValueInfoProto', id: 11 },
        output: { rule: 'repeated', type: 'ValueInfoProto', id: 12 },
      },
    },
    ModelProto: {
      fields: {
        irVersion: { type: 'int64', id: 1 },
        producerName: { type: 'string', id: 2 },
        graph: { type: 'GraphProto', id: 7 },
        opsetImport: { rule: 'repeated', type: 'OperatorSetIdProto', id: 8 },
      },
    },
  },
});

const modelType = root.lookupType('ModelProto');

/** A number is written as an int unless wrapped: `{ float: 1 }`. */
export type OnnxAttribute = number | { readonly float: number } | string | readonly number[];

export interface OnnxNode {
  readonly opType: string;
  readonly domain: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, OnnxAttribute>>;
}

export interface OnnxValue {
  readonly name: string;
  readonly type: keyof typeof TENSOR_TYPE;
  /** Extents; a name means any. */
  readonly shape: readonly (number | string)[];
}

export interface OnnxInitializer extends OnnxValue {
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export interface OnnxModel {
  readonly nodes: readonly OnnxNode[];
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
  readonly initializers: readonly OnnxInitializer[];
  /** Operator set version by domain; the empty domain is ONNX itself. */
  readonly opsets: Readonly<Record<string, number>>;
}

const IR_VERSION = 10;

/** Serializes to the bytes of an .onnx file. */
export function encodeModel(model: OnnxModel): Uint8Array {
  const message = modelType.create({
    irVersion: IR_VERSION,
    producerName: 'ragen',
    opsetImport: Object.entries(model.opsets).map(([domain, version]) => ({ domain, version })),
    graph: {
      name: 'graph',
      node: model.nodes.map((node, i) => ({
        name: `${node.opType}_${i}`,
        opType: node.opType,
        domain: node.domain,
        input: node.inputs,
        output: node.outputs,
        attribute: Object.entries(node.attributes).map(([name, value]) => ({
          name,
          ...encodeAttribute(value),
        })),
      })),
      initializer: model.initializers.map(({ name, type, shape, bytes }) => ({
        name,
        dims: shape,
        dataType: TENSOR_TYPE[type],
        rawData: bytes,
      })),
      input: model.inputs.map(encodeValue),
      output: model.outputs.map(encodeValue),
    },
  });
  return modelType.encode(message).finish();
}

function encodeValue({ name, type, shape }: OnnxValue): object {
  const dim = shape.map(extent => (typeof extent === 'string' ? { dimParam: extent } : { dimValue: extent }));
  return { name, type: { tensorType: { elemType: TENSOR_TYPE[type], shape: { dim } } } };
}

function encodeAttribute(value: OnnxAttribute): object {
  if (typeof value === 'number') return { i: value, type: ATTRIBUTE_TYPE.int };
  if (typeof value === 'string') return { s: new TextEncoder().encode(value), type: ATTRIBUTE_TYPE.string };
  if ('float' in value) return { f: value.float, type: ATTRIBUTE_TYPE.float };
  return { ints: value, type: ATTRIBUTE_TYPE.ints };
}
